"""The views of the market: lists, the page of a sale, a player's actions, the player's own pages."""
