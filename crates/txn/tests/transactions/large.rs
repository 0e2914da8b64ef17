//! Keys of a mebibyte and values of a hundred in transactions, prepared ones too.

use karst_engine::io::{Env, MemoryFileSystem};
use karst_engine::{ErrorKind, Options, ReadOptions, WriteOptions};
use karst_txn::{TransactionDb, TransactionDbOptions, TransactionOptions, WritePolicy};
use std::sync::Arc;

const MIB: usize = 1 << 20;

#[test]
fn large_keys_and_values_are_locked_prepared_and_recovered() {
    let (key, value) = (vec![b'k'; MIB], vec![b'v'; 100 * MIB]);
    for write_policy in [WritePolicy::WriteCommitted, WritePolicy::WritePrepared] {
        let env = Env::builder().file_system(Arc::new(MemoryFileSystem::new())).build();
        let options = Options::new().env(env).db(|db| db.create_if_missing = true);
        let own = TransactionDbOptions { write_policy, default_lock_timeout: 0, ..Default::default() };
        let db = TransactionDb::open("/db", &options, &own).unwrap();
        let (write, begin) = (WriteOptions::new(), TransactionOptions::default());
        let mut transaction = db.begin(&write, &begin);
        transaction.set_name("large").unwrap();
        transaction.put(&key, &value).unwrap();
        transaction.put("key", &value).unwrap();
        assert!(transaction.get(&ReadOptions::new(), &key).unwrap().as_deref() == Some(&value[..]));
        let told = db.put(&key, "of another").unwrap_err();
        assert_eq!(told.kind(), ErrorKind::TimedOut, "{}", told.to_string().len());
        assert!(told.to_string().len() < 1000, "the message has {} bytes", told.to_string().len());
        transaction.prepare().unwrap();
        drop((transaction, db));

        let db = TransactionDb::open("/db", &options, &own).unwrap();
        assert!(db.db().get(&key).unwrap().is_none(), "{write_policy:?}");
        assert_eq!(db.put(&key, "of another").unwrap_err().kind(), ErrorKind::TimedOut);
        db.get_transaction_by_name("large").unwrap().commit().unwrap();
        for key in [&key[..], b"key"] {
            assert!(db.db().get(key).unwrap().as_deref() == Some(&value[..]), "{write_policy:?}");
        }
        db.db().close().unwrap();
    }
}
