"""What three papers say, each with our operational definition, an experiment and a verdict computed from its figures."""
