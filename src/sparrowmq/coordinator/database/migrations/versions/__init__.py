"""One module a revision; revisions are numbers, and sort."""
