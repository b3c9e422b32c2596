"""The room that speaks Redis; nothing outside it does."""
