"""Draft trees of random shape, and naive answers to what the code under test computes.

A tree is its list of parents: ``parents[0] == -1``, and a parent comes before its children.
"""

from __future__ import annotations

import random
from itertools import pairwise

import torch
from torch import Tensor


def random_parents(rng: random.Random, nodes: int) -> list[int]:
    return [-1] + [rng.randrange(i) for i in range(1, nodes)]


def path_of(parents: list[int], node: int) -> list[int]:
    """Nodes from the root down to ``node``."""
    path = []
    while node != -1:
        path.insert(0, node)
        node = parents[node]
    return path


def children_of(parents: list[int], node: int) -> list[int]:
    return [i for i, parent in enumerate(parents) if parent == node]


def mask_of(parents: list[int], width: int) -> Tensor:
    """``[width, width]``: a node sees its path; a padding node sees itself."""
    mask = torch.eye(width, dtype=torch.bool)
    for node in range(len(parents)):
        for ancestor in path_of(parents, node):
            mask[node, ancestor] = True
    return mask


def links_of(parents: list[int], width: int) -> tuple[list[int], list[int]]:
    """First child and next sibling of every node, ``-1`` where there is none."""
    first_child, next_sibling = [-1] * width, [-1] * width
    for node in range(len(parents)):
        children = children_of(parents, node)
        if children:
            first_child[node] = children[0]
        for left, right in pairwise(children):
            next_sibling[left] = right
    return first_child, next_sibling
