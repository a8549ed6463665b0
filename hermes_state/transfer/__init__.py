"""Moving conversations into and out of stores."""
