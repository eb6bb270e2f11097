"""What a run does not need: others to play against, what looks at a run or at policies, and a person's table.

A folder is a room, and its first file says what it is for and what it leaves to other tools. ``extension`` is what the
core sees of all this, ``commands`` what ``python -m recipe.spiral.NAME`` starts. Without this folder a run trains,
resumes and exports as before.
"""
