"""Reports for people: text and tables. Sees plain dataclasses, no model."""
