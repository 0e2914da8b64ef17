//! Small file systems, mounted or simulated.

use karst_io::{Env, Simulation, sleep};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;

const BYTES: u64 = 48 << 20;
/// Approximate number of files that fit.
const INODES: usize = 256;
const BALLAST: &str = "ballast";
const FILES: &str = "files";

/// A file system of 48 MB, with an environment for its files.
pub(crate) struct Small {
    pub(crate) name: &'static str,
    pub(crate) env: Env,
    /// Directory for databases.
    pub(crate) root: PathBuf,
    /// A directory outside with enough space.
    pub(crate) elsewhere: PathBuf,
    device: Device,
}

enum Device {
    Mounted(Mount),
    Simulated(Simulation),
}

/// A mounted file system, unmounted on drop.
struct Mount {
    at: PathBuf,
    _folder: TempDir,
}

impl Drop for Mount {
    fn drop(&mut self) {
        let done = run("umount", &[self.at.as_os_str()])
            .or_else(|_| run("umount", &["-l".as_ref(), self.at.as_os_str()]));
        if let Err(error) = done {
            eprintln!("{} stays mounted: {error}", self.at.display());
        }
    }
}

fn run(program: &str, arguments: &[&std::ffi::OsStr]) -> Result<(), String> {
    let output = Command::new(program).args(arguments).output().map_err(|e| format!("{program}: {e}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("{program}: {}", String::from_utf8_lossy(&output.stderr).trim())),
    }
}

/// Runs `command`, split at spaces, with `path` in place of `{}`.
fn run_on(path: &Path, command: &str) -> Result<(), String> {
    let mut words =
        command.split(' ').map(|word| if word == "{}" { path.as_os_str() } else { word.as_ref() });
    let program = words.next().expect("a command has a name");
    run(program.to_str().expect("names of programs are text"), &words.collect::<Vec<_>>())
}

impl Small {
    /// Mounts a tmpfs.
    pub(crate) fn tmpfs() -> Small {
        Self::mounted("tmpfs", |_, at| {
            let options = format!("size={BYTES},nr_inodes={INODES}");
            run_on(at, &format!("mount -t tmpfs -o {options} tmpfs {{}}"))
        })
    }

    /// Mounts an ext4 in a file.
    pub(crate) fn ext4() -> Small {
        Self::mounted("ext4", |folder, at| {
            let image = folder.join("image");
            let file = std::fs::File::create(&image).map_err(|e| e.to_string())?;
            file.set_len(BYTES + (8 << 20)).map_err(|e| e.to_string())?;
            run_on(&image, &format!("mkfs.ext4 -q -F -m 0 -N {INODES} {{}}"))?;
            run("mount", &["-o".as_ref(), "loop".as_ref(), image.as_os_str(), at.as_os_str()])
        })
    }

    fn mounted(name: &'static str, mount: impl FnOnce(&Path, &Path) -> Result<(), String>) -> Small {
        let folder = TempDir::new().unwrap();
        let at = folder.path().join("mount");
        std::fs::create_dir(&at).unwrap();
        let elsewhere = folder.path().to_path_buf();
        match mount(folder.path(), &at) {
            Ok(()) => {
                let root = at.clone();
                let device = Device::Mounted(Mount { at, _folder: folder });
                Small { name, env: Env::posix(), root, elsewhere, device }
            }
            Err(error) => {
                eprintln!(
                    "{name} cannot be mounted here ({error}): a simulated disk of the same size stands in for it"
                );
                let simulation = Simulation::new(1);
                simulation.fs().set_capacity(Some(BYTES));
                let (env, root) = (simulation.env().clone(), PathBuf::from("/"));
                Small {
                    name: "simulated",
                    env,
                    root,
                    elsewhere: "/elsewhere".into(),
                    device: Device::Simulated(simulation),
                }
            }
        }
    }

    /// Leaves at most this many bytes free, and little less.
    pub(crate) fn fill(&self, leave: u64) {
        match &self.device {
            Device::Simulated(simulation) => {
                simulation.fs().set_capacity(Some(BYTES));
                simulation.fs().set_capacity(Some(BYTES - self.free() + leave));
            }
            Device::Mounted(mount) => {
                let path = mount.at.join(BALLAST);
                let mut file = std::fs::File::options().append(true).create(true).open(path).unwrap();
                while self.free() > leave {
                    let bytes = (self.free() - leave).clamp(4096, 1 << 20) as usize;
                    if file.write_all(&vec![0; bytes]).and_then(|()| file.sync_data()).is_err() {
                        break;
                    }
                }
            }
        }
    }

    /// Uses up all inodes; returns false if the device cannot run out of them.
    pub(crate) fn use_up_inodes(&self) -> bool {
        let Device::Mounted(mount) = &self.device else { return false };
        std::fs::create_dir(mount.at.join(FILES)).unwrap();
        (0..10 * INODES).any(|i| std::fs::File::create(mount.at.join(FILES).join(i.to_string())).is_err())
    }

    /// Gives back the space and inodes that were used up.
    pub(crate) fn clear(&self) {
        match &self.device {
            Device::Simulated(simulation) => simulation.fs().set_capacity(Some(BYTES)),
            Device::Mounted(mount) => {
                let _ = std::fs::remove_file(mount.at.join(BALLAST));
                let _ = std::fs::remove_dir_all(mount.at.join(FILES));
            }
        }
    }

    /// Lets background work run on a simulated machine, which has no threads.
    pub(crate) fn breathe(&self) {
        if let Device::Simulated(simulation) = &self.device {
            simulation.run(sleep(&self.env, Duration::from_micros(100)));
        }
    }

    /// Returns the number of free bytes.
    pub(crate) fn free(&self) -> u64 {
        self.env.fs().free_bytes(&self.root).unwrap().expect("it is known")
    }
}
