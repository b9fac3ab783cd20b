"""Hooks into torch, one file for each part of it: loaders, optimizers, DDP, collectives, files."""
