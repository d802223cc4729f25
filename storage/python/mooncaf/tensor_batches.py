"""The calls about tensors for several keys at once: one answer for each, in their order."""

from .tensors import INVALID_PARAMETERS, NOT_SUPPORTED, TensorCalls

__all__ = ["TensorBatches"]


def _for_each(values, keys):
    """One for each key, of a list or of nothing."""
    return [None] * len(keys) if values is None else list(values)


class TensorBatches(TensorCalls):
    @staticmethod
    def _each(call, keys, *lists, refused=INVALID_PARAMETERS):
        if isinstance(keys, (str, bytes)):  # its letters would be keys, too
            raise TypeError("keys is a list")
        if any(len(values) != len(keys) for values in lists):
            return [refused] * len(keys)
        return [call(*one) for one in zip(keys, *lists)]

    # ---- whole

    def batch_put_tensor(self, keys, tensors_list):
        return self._each(self.put_tensor, keys, tensors_list)

    def batch_pub_tensor(self, keys, tensors_list, config=None):
        return self._each(lambda key, tensor: self.pub_tensor(key, tensor, config), keys, tensors_list)

    def batch_upsert_tensor(self, keys, tensors_list):
        return self._each(self.upsert_tensor, keys, tensors_list)

    def batch_upsert_pub_tensor(self, keys, tensors_list, config=None):
        return self._each(lambda key, tensor: self.upsert_pub_tensor(key, tensor, config), keys, tensors_list)

    def batch_get_tensor(self, keys):
        return self._each(self.get_tensor, keys)

    def batch_get_tensor_into(self, keys, buffer_ptrs, sizes):
        return self._each(self.get_tensor_into, keys, buffer_ptrs, sizes)

    def batch_put_tensor_from(self, keys, buffer_ptrs, sizes):
        return self._each(self.put_tensor_from, keys, buffer_ptrs, sizes)

    def batch_upsert_tensor_from(self, keys, buffer_ptrs, sizes):
        return self._each(self.upsert_tensor_from, keys, buffer_ptrs, sizes)

    # ---- as shards

    def batch_put_tensor_with_tp(self, base_keys, tensors_list, tp_rank=0, tp_size=1, split_dim=0):
        return self.batch_pub_tensor_with_tp(base_keys, tensors_list, None, tp_rank, tp_size, split_dim)

    def batch_pub_tensor_with_tp(self, base_keys, tensors_list, config=None, tp_rank=0, tp_size=1, split_dim=0):
        return self._each(lambda key, tensor: self.pub_tensor_with_tp(key, tensor, config, tp_rank, tp_size, split_dim), base_keys, tensors_list)

    def batch_put_tensor_with_tp_from(self, base_keys, buffer_ptrs, sizes, tp_rank=0, tp_size=1, split_dim=0):
        return self._each(lambda *one: self.put_tensor_with_tp_from(*one, tp_rank, tp_size, split_dim), base_keys, buffer_ptrs, sizes)

    def batch_get_tensor_with_tp(self, base_keys, tp_rank=0, tp_size=1):
        return self._each(lambda key: self.get_tensor_with_tp(key, tp_rank, tp_size), base_keys)

    def batch_get_tensor_with_tp_into(self, base_keys, buffer_ptrs, sizes, tp_rank=0, tp_size=1):
        return self._each(lambda *one: self.get_tensor_with_tp_into(*one, tp_rank, tp_size), base_keys, buffer_ptrs, sizes)

    def batch_put_tensor_with_parallelism(self, keys, tensors_list, parallelisms=None, config=None, writer_partitions=None):
        return self._each(lambda key, tensor, how, by: self.put_tensor_with_parallelism(key, tensor, how, config, by), keys, tensors_list,
                          _for_each(parallelisms, keys), _for_each(writer_partitions, keys))

    def batch_upsert_tensor_with_parallelism(self, keys, tensors_list, parallelisms=None, config=None, writer_partitions=None):
        return self._each(lambda key, tensor, how, by: self.upsert_tensor_with_parallelism(key, tensor, how, config, by), keys, tensors_list,
                          _for_each(parallelisms, keys), _for_each(writer_partitions, keys))

    def batch_put_tensor_with_parallelism_from(self, keys, buffer_ptrs, sizes, parallelisms=None, config=None, writer_partitions=None):
        return self._each(lambda *one: self.put_tensor_with_parallelism_from(*one[:4], config, one[4]), keys, buffer_ptrs, sizes,
                          _for_each(parallelisms, keys), _for_each(writer_partitions, keys))

    def batch_upsert_tensor_with_parallelism_from(self, keys, buffer_ptrs, sizes, parallelisms=None, config=None, writer_partitions=None):
        return self._each(lambda *one: self.upsert_tensor_with_parallelism_from(*one[:4], config, one[4]), keys, buffer_ptrs, sizes,
                          _for_each(parallelisms, keys), _for_each(writer_partitions, keys))

    def batch_get_tensor_with_parallelism(self, keys, targets=None):
        return self._each(self.get_tensor_with_parallelism, keys, _for_each(targets, keys), refused=None)

    def batch_get_tensor_with_parallelism_into(self, keys, buffer_ptrs, sizes, targets=None):
        return self._each(self.get_tensor_with_parallelism_into, keys, buffer_ptrs, sizes, _for_each(targets, keys), refused=None)

    # ---- into a graphics card's memory, which the store does not reach

    def get_tensor_into_cuda(self, key, tensor):
        return NOT_SUPPORTED

    def batch_get_tensor_into_cuda(self, keys, tensors_list):
        return [NOT_SUPPORTED] * len(keys)
