//! Servers under test: `karstdb serve` of this checkout and Debian's redis-server, each on a free
//! port of the loopback interface with a fresh directory.

use super::failed;
use crate::run::{Result, path_text, step, target_dir};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Time within which a server must answer PING.
const READY_WITHIN: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(50);

/// A server's program.
pub(super) enum Program {
    /// This file, of this checkout.
    Karst(PathBuf),
    Redis,
}

impl Program {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Karst(_) => "karst",
            Self::Redis => "redis",
        }
    }
}

/// A running server, killed when it is dropped; its directory is then deleted.
pub(super) struct Server {
    child: Child,
    data: PathBuf,
    pub(super) port: u16,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _may_have_ended = self.child.kill();
        let _is_known = self.child.wait();
        let _may_be_missing = fs::remove_dir_all(&self.data);
    }
}

/// Builds `karstdb`, and returns the path of the program.
pub(super) fn build() -> Result<PathBuf> {
    step("cargo", &["build", "-p", "karst-tools"], &[])?;
    Ok(target_dir().join("debug/karstdb"))
}

/// Version of the installed redis-server.
pub(super) fn redis_version() -> Result<String> {
    let wanted = "redis-server is not installed (Debian: redis-server)";
    let output = Command::new("redis-server").arg("--version").output();
    let text = String::from_utf8_lossy(&output.map_err(|e| format!("{wanted}: {e}"))?.stdout).into_owned();
    let version = text.split_whitespace().find_map(|word| word.strip_prefix("v="));
    version.map(str::to_owned).ok_or_else(|| wanted.to_owned())
}

/// Starts a server, with a directory of its own in `data` and its output in `log`.
pub(super) fn start(program: &Program, data: &Path, log: &Path) -> Result<Server> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(|e| format!("no free port: {e}"))?;
    let port = listener.local_addr().map_err(|e| format!("no free port: {e}"))?.port();
    drop(listener);
    // Named by the port, because another run may have a server at the same time.
    let data = data.join(port.to_string());
    let _may_be_missing = fs::remove_dir_all(&data);
    fs::create_dir_all(&data).map_err(|e| failed(&data, e))?;
    let dir = path_text(&data)?;
    let mut command = match program {
        Program::Karst(path) => {
            let mut command = Command::new(path);
            let listen = format!("127.0.0.1:{port}");
            let db = format!("{dir}/db");
            command.args(["serve", &db, "--listen", &listen, "--appendfsync", "no"]);
            command.args(["--save-dir", dir, "--enable-debug-command"]);
            command
        }
        Program::Redis => {
            let mut command = Command::new("redis-server");
            let port = port.to_string();
            command.args(["--port", &port, "--save", "", "--dir", dir, "--enable-debug-command", "local"]);
            command
        }
    };
    let file = File::create(log).map_err(|e| failed(log, e))?;
    let child = command
        .stdin(Stdio::null())
        .stdout(file.try_clone().map_err(|e| failed(log, e))?)
        .stderr(file)
        .spawn()
        .map_err(|e| format!("cannot run {command:?}: {e}"))?;
    let (mut server, start) = (Server { child, data: data.clone(), port }, Instant::now());
    while !answers(port) {
        let ended = server.child.try_wait().map_err(|e| failed(log, e))?;
        if ended.is_some() || start.elapsed() > READY_WITHIN {
            return Err(format!("{} does not serve: see {}", program.name(), log.display()));
        }
        std::thread::sleep(LOOK);
    }
    Ok(server)
}

/// Returns true if the server at a port answers PING.
fn answers(port: u16) -> bool {
    let Ok(mut socket) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)) else { return false };
    let mut answer = [0; 7];
    socket.set_read_timeout(Some(READY_WITHIN)).is_ok()
        && socket.write_all(b"PING\r\n").is_ok()
        && socket.read_exact(&mut answer).is_ok()
        && &answer == b"+PONG\r\n"
}
