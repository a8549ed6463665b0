"""Speed and memory as ratios to the bare driver, measured in one run; see docs/performance.md."""
