"""Stands in for the package of the same name: put this folder's parent on the path, or do not."""
