"""Checked by mypy, not run: the types that a user sees."""

import karstdb


def dictionary(db: karstdb.Rdict) -> bytes:
    db[b"k"] = bytearray(b"v")
    found: bytes | None = db.get(b"k")
    otherwise: bytes | int = db.get(b"k", 1)
    assert found != otherwise
    return next(value for _, value in db.items(prefix=b"k"))


async def tasks(db: karstdb.Rdict) -> list[bytes]:
    await db.put_async(b"k", b"v", sync=True)
    found: bytes | None = await db.get_async(b"k")
    assert found
    return [key async for key, _ in db.items_async()]


def wrong(db: karstdb.Rdict) -> None:
    db["text"] = b"v"  # type: ignore[index]
    db.put(b"k", 1)  # type: ignore[arg-type]
