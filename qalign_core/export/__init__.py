"""What is taken home: a page that plays a trace, and the command that draws it again."""
