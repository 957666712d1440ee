"""Temperature laws compared on the real model: `laws` -> `study` -> `measures` -> `verdict` -> `page`."""
