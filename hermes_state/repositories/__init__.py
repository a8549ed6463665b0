"""Repositories: the verbs on the tables, inside a transaction that they never end."""
