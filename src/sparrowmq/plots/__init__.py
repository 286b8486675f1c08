"""Pages and charts for people: HTML and SVG as text, without scripts and external resources. Pure."""
