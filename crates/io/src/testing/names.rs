//! The contract's part about names, directories and appending.

use crate::env::Env;
use crate::error::Error;
use crate::file::OpenOptions;
use std::io::ErrorKind;
use std::path::Path;

fn write(env: &Env, path: &Path, bytes: &[u8]) {
    let mut file = env.fs().create(path).unwrap();
    file.append(bytes).unwrap();
    file.sync().unwrap();
}

pub(super) fn files_and_directories(env: &Env, dir: &Path) {
    let fs = env.fs();
    assert_eq!(fs.list_dir(dir).unwrap(), [""; 0]);
    let sub = dir.join("sub/deep");
    fs.create_dir_durably(&sub).unwrap();
    fs.create_dir_durably(&sub).unwrap();
    fs.create_dir(&sub).unwrap();
    assert!(fs.metadata(&sub).unwrap().is_dir);
    let (a, b) = (sub.join("a"), sub.join("b"));
    assert!(!fs.exists(&a).unwrap());
    write(env, &a, b"one");
    assert!(fs.exists(&a).unwrap());
    let found = fs.metadata(&a).unwrap();
    assert_eq!((found.len, found.is_dir), (3, false));

    let mut file = fs.append(&a).unwrap();
    assert_eq!((file.size(), file.path()), (3, &*a));
    file.append(b" two").unwrap();
    assert_eq!(file.size(), 7);
    file.append(b"").unwrap();
    file.truncate(5).unwrap();
    assert_eq!(file.size(), 5);
    file.append(b"!").unwrap();
    drop(file);
    assert_eq!(fs.read_file(&a).unwrap(), b"one t!");
    fs.append(&b).unwrap().append(b"new").unwrap();
    assert_eq!(fs.read_file(&b).unwrap(), b"new");

    assert_eq!(fs.list_dir(&sub).unwrap(), ["a", "b"]);
    assert_eq!(fs.list_dir(&dir.join("sub")).unwrap(), ["deep"]);
    fs.rename(&a, &b).unwrap();
    assert_eq!(fs.read_file(&b).unwrap(), b"one t!");
    assert_eq!(fs.list_dir(&sub).unwrap(), ["b"]);
    fs.sync_dir(&sub).unwrap();
    assert_eq!(fs.create(&b).unwrap().size(), 0);
    assert_eq!(fs.metadata(&b).unwrap().len, 0);
    assert!(fs.remove_dir(&sub).is_err(), "removed a directory that is not empty");

    // Two names of one file.
    write(env, &a, b"shared");
    fs.link(&a, &sub.join("c")).unwrap();
    fs.append(&a).unwrap().append(b" bytes").unwrap();
    assert_eq!(fs.read_file(&sub.join("c")).unwrap(), b"shared bytes");
    assert_eq!(fs.link(&a, &b).expect_err("the name is taken").kind(), ErrorKind::AlreadyExists);
    fs.remove(&a).unwrap();
    assert_eq!(fs.read_file(&sub.join("c")).unwrap(), b"shared bytes");
    fs.remove(&sub.join("c")).unwrap();

    // An open file stays whole when its name is removed.
    write(env, &b, b"still here");
    let open = crate::block_on(env, crate::open(env, &b, OpenOptions::BUFFERED)).unwrap();
    fs.remove(&b).unwrap();
    assert!(!fs.exists(&b).unwrap());
    assert_eq!(&*crate::block_on(env, crate::read(env, &open, 0, 100)).unwrap(), b"still here");
    fs.remove_dir(&sub).unwrap();
    fs.remove_dir(&dir.join("sub")).unwrap();
    assert_eq!(fs.list_dir(dir).unwrap(), [""; 0]);

    let listed = crate::block_on(
        env,
        env.run_blocking({
            let dir = dir.to_path_buf();
            move |env| env.fs().list_dir(&dir)
        }),
    );
    assert_eq!(listed.unwrap(), [""; 0]);
}

pub(super) fn errors_name_the_operation_and_the_path(env: &Env, dir: &Path) {
    fn expect<T>(result: Result<T, Error>, op: &str, path: &Path, kind: ErrorKind) {
        let Err(e) = result else { panic!("{op} {} succeeded", path.display()) };
        assert_eq!((e.op, &*e.path, e.kind()), (op, path, kind), "{e}");
        let text = e.to_string();
        assert!(text.contains(op) && text.contains(&*path.to_string_lossy()), "{text}");
    }
    let fs = env.fs();
    let none = dir.join("none");
    let missing = ErrorKind::NotFound;
    expect(fs.open_random(&none, OpenOptions::BUFFERED), "open", &none, missing);
    expect(crate::block_on(env, crate::open(env, &none, OpenOptions::DIRECT)), "open", &none, missing);
    expect(fs.read_file(&none), "read", &none, missing);
    expect(fs.list_dir(&none), "list", &none, missing);
    expect(fs.metadata(&none), "stat", &none, missing);
    expect(fs.remove(&none), "remove", &none, missing);
    expect(fs.remove_dir(&none), "remove directory", &none, missing);
    expect(fs.rename(&none, &dir.join("x")), "rename", &none, missing);
    expect(fs.link(&none, &dir.join("x")), "link", &none, missing);
    expect(fs.sync_dir(&none), "sync directory", &none, missing);
    expect(fs.create(&none.join("x")), "create", &none.join("x"), missing);
    expect(fs.open_random(dir, OpenOptions::BUFFERED), "open", dir, ErrorKind::IsADirectory);
    let file = dir.join("file");
    write(env, &file, b"x");
    expect(fs.list_dir(&file), "list", &file, ErrorKind::NotADirectory);
    fs.remove(&file).unwrap();
}

pub(super) fn locks_exclude(env: &Env, dir: &Path) {
    let path = dir.join("LOCK");
    let lock = env.fs().lock(&path).unwrap();
    assert_eq!(lock.path(), path);
    let second = env.fs().lock(&path).expect_err("locked twice");
    assert_eq!((second.op, second.kind()), ("lock", ErrorKind::WouldBlock));
    assert!(second.is_locked());
    drop(lock);
    drop(env.fs().lock(&path).unwrap());
    env.fs().remove(&path).unwrap();
}
