"""Drafters of others, to compare with on recorded replies; no server uses them.

Each proposes what its authors' does, and nothing corrects or rests it.
"""
