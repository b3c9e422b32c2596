"""The pages of the market: the board, one item, a player's deeds, the players themselves."""
