"""Pages and charts for people: HTML and SVG as text, without scripts and without anything fetched. Pure."""
