"""Folder that is put on ``PYTHONPATH`` so that ``import sgl_kernel`` finds CPU operations."""
