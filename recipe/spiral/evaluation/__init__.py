"""How good a policy is: exactly, where a game is small enough."""
