"""One script per number that the docs quote: raw limits, peers and Kipu side by side in the same run."""
