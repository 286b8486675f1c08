"""One module per revision; revisions are numbers, and sort."""
