"""Template tags of the admin's pages. Django imports them in every project, so they must not need the admin."""
