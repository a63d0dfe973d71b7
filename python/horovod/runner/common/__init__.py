"""Parts of the launcher's Python side that worker processes use too."""
