"""From operators of ai.octavo to stock ones: one operator, one file, and its entry in `LOWERINGS`.

Weights are the same integers with the same scales. What stock operators cannot hold is computed in
float, with a note.
"""
