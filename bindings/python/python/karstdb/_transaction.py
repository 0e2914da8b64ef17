"""Methods of ``Transaction`` that are written in Python: ``get`` and coroutine forms."""

from ._asyncio import drive
from ._karstdb import Transaction
from ._methods import attach, attach_entries


def _get(self, key, default=None, column_family=None, *, snapshot=None, **read):
    """Returns the value of ``key``, the transaction's own writes included, or ``default``."""
    value = self._get(key, snapshot, read, column_family)
    return default if value is None else value


def _getitem(self, key):
    value = self._get(key, None, None, None)
    if value is None:
        raise KeyError(key)
    return value


async def _get_async(self, key, default=None, column_family=None, *, snapshot=None, **read):
    """Coroutine form of ``get``. Calls of one transaction run one after the other."""
    value = await drive(self._get_operation(key, snapshot, read, column_family))
    return default if value is None else value


async def _multi_get_async(self, keys, column_family=None, *, snapshot=None, **read):
    """Coroutine form of ``multi_get``."""
    return await drive(self._multi_get_operation(list(keys), snapshot, read, column_family))


async def _get_for_update_async(self, key, column_family=None, *, exclusive=True, snapshot=None, **read):
    """Coroutine form of ``get_for_update``. Waiting for a lock does not block other tasks."""
    return await drive(self._get_for_update_operation(key, exclusive, snapshot, read, column_family))


async def _put_async(self, key, value, column_family=None):
    """Coroutine form of ``put``."""
    await drive(self._put_operation(key, value, column_family))


async def _delete_async(self, key, column_family=None):
    """Coroutine form of ``delete``."""
    await drive(self._delete_operation(key, column_family))


async def _merge_async(self, key, operand, column_family=None):
    """Coroutine form of ``merge``."""
    await drive(self._merge_operation(key, operand, column_family))


async def _prepare_async(self):
    """Coroutine form of ``prepare``. A started prepare continues if the task is cancelled."""
    await drive(self._prepare_operation())


async def _commit_async(self):
    """Coroutine form of ``commit``. A cancelled task writes the whole transaction or none of it."""
    await drive(self._commit_operation())


async def _rollback_async(self):
    """Coroutine form of ``rollback``. A started rollback continues if the task is cancelled."""
    await drive(self._rollback_operation())


async def _aenter(self):
    return self


async def _aexit(self, kind, value, traceback):
    if self.ended:
        return
    if kind is not None:
        return self.__exit__(kind, value, traceback)
    try:
        await self.commit_async()
    except Exception as error:
        # The commit's error is raised, not the rollback's.
        self.__exit__(type(error), error, error.__traceback__)
        raise


attach(
    Transaction,
    _get,
    _get_async,
    _multi_get_async,
    _get_for_update_async,
    _put_async,
    _delete_async,
    _merge_async,
    _prepare_async,
    _commit_async,
    _rollback_async,
)
attach_entries(Transaction)
Transaction.__getitem__ = _getitem
Transaction.__aenter__ = _aenter
Transaction.__aexit__ = _aexit
