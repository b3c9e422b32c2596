"""The admin's pages, in a project of their own that has two sites."""
