"""What our templates load; Django imports it in every project, so nothing here may need the admin."""
