"""``sgl_kernel.speculative``, the one submodule that SGLang's NGRAM path imports."""

import sgl_kernel

reconstruct_indices_from_tree_mask = sgl_kernel.kernels.reconstruct_indices_from_tree_mask
