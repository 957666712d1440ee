"""The claims of each paper: a row each, with our operational definition, its experiment and its thresholds."""
