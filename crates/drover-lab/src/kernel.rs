// SPDX-License-Identifier: GPL-2.0-only
//! The kernel of the virtual host: one given, one in the cache, one fetched from the machine's package
//! archive, or the machine's own, in this order.
//!
//! Whatever the source, a kernel ends as a cache entry of the same shape: `vmlinuz`, `config` and
//! `modules/NN-name.ko`, unpacked and numbered in the order they load in; those of guests and for networks likewise.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::apt::{Archive, PrivateApt};
use crate::cache::{Cache, Facts, write_file};
use crate::kernel_config::Use;
use crate::kernel_packages::{self, Candidate, version_has_prefix};
use crate::{kernel_config, modules};

/// Which kernel the user wants.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum KernelChoice {
    /// The newest that works, fetched once and kept.
    #[default]
    Default,
    /// The newest whose version begins so, such as `6.18`.
    Version(String),
    /// A file such as `/boot/vmlinuz-VERSION`, with its modules in `/lib/modules/VERSION`.
    Image(PathBuf),
    /// The one this machine runs.
    Host,
}

impl KernelChoice {
    /// Reads the value of `--kernel`: a path, `host`, or the beginning of a version.
    ///
    /// # Errors
    /// When it is none of these.
    pub fn parse(text: &str) -> Result<Self> {
        if text == "host" {
            Ok(Self::Host)
        } else if text.contains('/') {
            Ok(Self::Image(PathBuf::from(text)))
        } else if text.starts_with(|c: char| c.is_ascii_digit()) {
            Ok(Self::Version(text.to_owned()))
        } else {
            bail!("--kernel {text}: give a path to a vmlinuz, a version such as 6.18, or `host`")
        }
    }
}

/// A kernel ready to boot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// Its version, as `uname -r` prints it.
    pub version: String,
    /// Its cache entry.
    dir: PathBuf,
}

impl Kernel {
    /// A kernel of this version that is nowhere.
    #[cfg(test)]
    pub(crate) fn for_test(version: &str) -> Self {
        Self { version: version.to_owned(), dir: PathBuf::new() }
    }

    /// The bootable image.
    #[must_use]
    pub fn image(&self) -> PathBuf {
        self.dir.join("vmlinuz")
    }

    /// The configuration it was built with.
    #[must_use]
    pub fn config(&self) -> PathBuf {
        self.dir.join("config")
    }

    /// The lab's modules in the order to load them in.
    ///
    /// # Errors
    /// When the cache entry cannot be read.
    pub fn modules(&self) -> Result<Vec<PathBuf>> {
        self.files_of(MODULES)
    }

    /// The lab's modules for a network, in the order to load them in.
    ///
    /// # Errors
    /// When the cache entry cannot be read.
    pub fn network_modules(&self) -> Result<Vec<PathBuf>> {
        self.files_of(NETWORK_MODULES)
    }

    /// The lab's modules for disks of its guests, in the order to load them in.
    ///
    /// # Errors
    /// When they cannot be listed.
    pub fn disk_modules(&self) -> Result<Vec<PathBuf>> {
        self.files_of(DISK_MODULES)
    }

    /// Its guests' modules in the order to load them in, and those for a network likewise.
    ///
    /// # Errors
    /// When the cache entry cannot be read.
    pub fn guest_modules(&self) -> Result<[Vec<PathBuf>; 2]> {
        Ok([self.files_of(GUEST_MODULES)?, self.files_of(GUEST_NETWORK_MODULES)?])
    }

    fn files_of(&self, dir: &str) -> Result<Vec<PathBuf>> {
        let dir = self.dir.join(dir);
        let entries =
            fs::read_dir(&dir).with_context(|| format!("cannot read {}", dir.display()))?;
        let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
        paths.sort();
        Ok(paths)
    }
}

/// Where a cache entry has modules, which is also the name of the fact that says which were wanted.
const MODULES: &str = "modules";
const NETWORK_MODULES: &str = "network-modules";
const DISK_MODULES: &str = "disk-modules";
const GUEST_MODULES: &str = "guest-modules";
const GUEST_NETWORK_MODULES: &str = "guest-network-modules";

/// The modules that are wanted, by where they go.
fn wanted() -> [(&'static str, &'static [&'static str]); 5] {
    [
        (MODULES, &modules::WANTED),
        (NETWORK_MODULES, &modules::WANTED_FOR_NETWORK),
        (DISK_MODULES, &modules::WANTED_FOR_DISKS),
        (GUEST_MODULES, &modules::WANTED_BY_GUESTS),
        (GUEST_NETWORK_MODULES, &modules::WANTED_BY_GUESTS_FOR_NETWORK),
    ]
}

/// Finds, fetches and unpacks the kernel chosen. `tell` gets a line before anything that takes long.
///
/// # Errors
/// One line that says why none can be had and what to do.
pub fn provide(cache: &Cache, choice: &KernelChoice, tell: &mut dyn FnMut(&str)) -> Result<Kernel> {
    let _others_wait = cache.lock("kernels")?;
    match choice {
        KernelChoice::Image(image) => given(cache, &Source::of_image(image)?, Use::AsAsked),
        KernelChoice::Host => given(cache, &Source::of_host()?, Use::AsAsked),
        KernelChoice::Version(prefix) => match newest_cached(cache, Some(prefix)) {
            Some(kernel) => Ok(kernel),
            None => fetch(cache, Some(prefix), tell),
        },
        KernelChoice::Default => match default_cached(cache) {
            Some(kernel) => Ok(kernel),
            None => fetch_default(cache, tell),
        },
    }
}

/// Name of the file that says which cached kernel is the default.
const DEFAULT_NAME: &str = "kernels/default";

/// The kernel fetched by default before, when its entry is whole.
fn default_cached(cache: &Cache) -> Option<Kernel> {
    let version = fs::read_to_string(cache.path(DEFAULT_NAME)).ok()?;
    cached(cache, version.trim())
}

fn fetch_default(cache: &Cache, tell: &mut dyn FnMut(&str)) -> Result<Kernel> {
    match fetch(cache, None, tell) {
        Ok(kernel) => {
            write_file(&cache.path(DEFAULT_NAME), kernel.version.as_bytes())?;
            Ok(kernel)
        }
        Err(trouble) => {
            let host = || Source::of_host().and_then(|source| given(cache, &source, Use::Schedule));
            instead_of_fetched(cache, &trouble, host, tell)
        }
    }
}

/// When nothing can be fetched: a kernel fetched for `--kernel VERSION` before, or the machine's own.
fn instead_of_fetched(
    cache: &Cache,
    trouble: &anyhow::Error,
    host: impl FnOnce() -> Result<Kernel>,
    tell: &mut dyn FnMut(&str),
) -> Result<Kernel> {
    let found = newest_cached(cache, None).map_or_else(host, Ok);
    match found {
        Ok(kernel) => {
            tell(&format!("no kernel could be fetched ({trouble:#}); taking {}", kernel.version));
            Ok(kernel)
        }
        Err(host_trouble) => bail!(
            "no kernel for the lab: fetching failed ({trouble:#}); this machine's own will not do \
             ({host_trouble:#}); go online once, or give one with --kernel PATH"
        ),
    }
}

fn newest_cached(cache: &Cache, prefix: Option<&str>) -> Option<Kernel> {
    let mut versions: Vec<String> = fs::read_dir(cache.path("kernels"))
        .ok()?
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|version| prefix.is_none_or(|prefix| version_has_prefix(version, prefix)))
        .filter(|version| cache.path("kernels").join(version).is_dir())
        .collect();
    versions.sort_by_key(|version| std::cmp::Reverse(kernel_packages::numbers(version)));
    versions.iter().find_map(|version| cached(cache, version))
}

fn cached(cache: &Cache, version: &str) -> Option<Kernel> {
    let name = format!("kernels/{version}");
    let facts = cache.verified(&name)?;
    let whole = wanted().iter().all(|(dir, names)| facts.get(*dir) == Some(&names.join(" ")));
    whole.then(|| Kernel { version: version.to_owned(), dir: cache.path(&name) })
}

/// How many kernels of an archive are tried when the newest cannot be used.
const TRIES: usize = 3;

/// Room that lists and packages of a kernel take while they are fetched and unpacked.
const FETCH_ROOM_MIB: u64 = 256;

fn fetch(cache: &Cache, prefix: Option<&str>, tell: &mut dyn FnMut(&str)) -> Result<Kernel> {
    ensure!(cfg!(target_arch = "x86_64"), "the lab needs an x86-64 machine");
    cache.need_room(FETCH_ROOM_MIB, "fetching a kernel")?;
    let archive = Archive::of_this_machine()?;
    let distribution = &archive.distribution;
    let flavour = kernel_packages::flavour(distribution);
    let apt = PrivateApt::new(cache, &archive, kernel_packages::suites(distribution))?;
    tell("fetching the list of kernels from this machine's package archive");
    let trouble = apt.update()?;
    let records = apt.search(&format!("^linux-(image|binary|modules|base)-[0-9].*{flavour}$"))?;
    let found = kernel_packages::candidates(&kernel_packages::parse(&records), flavour, prefix);
    if found.is_empty() {
        match (trouble, prefix) {
            (Some(line), _) => bail!("the package archive cannot be reached ({line})"),
            (None, Some(prefix)) => {
                bail!("the package archive has no kernel {prefix} that is whole")
            }
            (None, None) => bail!("the package archive has no kernel that is whole"),
        }
    }
    let wanted = if prefix.is_none() { Use::Schedule } else { Use::AsAsked };
    let mut refusals = Vec::new();
    for candidate in found.iter().take(TRIES) {
        tell(&format!("fetching kernel {}", candidate.version));
        let root = fetch_tree(cache, &apt, candidate)?;
        let source = Source::of_tree(root.path(), &candidate.version);
        match source.and_then(|source| import(cache, &source, wanted)) {
            Ok(kernel) => return Ok(kernel),
            Err(error) => refusals.push(format!("{error:#}")),
        }
    }
    bail!("{}", refusals.join("; "))
}

/// Downloads a kernel's packages and unpacks them into a directory.
fn fetch_tree(cache: &Cache, apt: &PrivateApt, candidate: &Candidate) -> Result<tempfile::TempDir> {
    let root = cache.scratch()?;
    let (_packages_dir, packages) = apt.download(&candidate.packages)?;
    for package in &packages {
        let result = Command::new("dpkg-deb").arg("-x").arg(package).arg(root.path()).output();
        let result = result.context("cannot run dpkg-deb")?;
        let complaints = String::from_utf8_lossy(&result.stderr);
        let first = complaints.lines().next().unwrap_or_default();
        ensure!(result.status.success(), "cannot unpack {}: {first}", package.display());
    }
    Ok(root)
}

/// Where the parts of a kernel lie before they are imported.
#[derive(Debug)]
struct Source {
    version: String,
    image: PathBuf,
    config: PathBuf,
    modules: PathBuf,
}

impl Source {
    /// Finds the parts below `root`, in the places old and new packages use.
    fn of_tree(root: &Path, version: &str) -> Result<Self> {
        Ok(Self {
            version: version.to_owned(),
            image: find_part(root, version, "vmlinuz", "image")?,
            config: find_part(root, version, "config", "configuration file")?,
            modules: find_part(root, version, "kernel", "modules")?,
        })
    }

    /// The parts of the running kernel.
    fn of_host() -> Result<Self> {
        let release = fs::read_to_string("/proc/sys/kernel/osrelease").context("no /proc here")?;
        Self::of_tree(Path::new("/"), release.trim())
    }

    /// An image given; the version inside says where its modules and configuration are.
    fn of_image(image: &Path) -> Result<Self> {
        let bytes = fs::read(image).with_context(|| format!("--kernel {}", image.display()))?;
        let version = image_version(&bytes)
            .with_context(|| format!("--kernel {}: no bootable Linux image", image.display()))?;
        let beside = image.parent().unwrap_or(Path::new("/"));
        let own_tree = beside.join("kernel").is_dir() && beside.join("config").is_file();
        let (config, modules) = if own_tree {
            (beside.join("config"), beside.join("kernel"))
        } else {
            let root = Path::new("/");
            let config = find_part(root, &version, "config", "configuration file")?;
            (config, find_part(root, &version, "kernel", "modules")?)
        };
        Ok(Self { version, image: image.to_owned(), config, modules })
    }
}

/// Finds a part of a kernel: newer packages have all in the modules directory, older ones some in /boot.
fn find_part(root: &Path, version: &str, name: &str, what: &str) -> Result<PathBuf> {
    [
        format!("usr/lib/modules/{version}/{name}"),
        format!("lib/modules/{version}/{name}"),
        format!("boot/{name}-{version}"),
    ]
    .iter()
    .map(|place| root.join(place))
    .find(|path| path.exists())
    .with_context(|| format!("kernel {version} has no {what} in /boot or /lib/modules"))
}

/// The version text of a bzImage: its place stands at offset 0x20e of the header, relative to 0x200.
fn image_version(image: &[u8]) -> Option<String> {
    let header = image.get(0x202..0x210)?;
    let offset = usize::from(u16::from_le_bytes([header[0xc], header[0xd]])) + 0x200;
    let text = image.get(offset..)?.split(|&byte| byte == 0).next()?;
    let version = std::str::from_utf8(text).ok()?.split_whitespace().next()?;
    (image.get(0x202..0x206)? == b"HdrS").then(|| version.to_owned())
}

/// Takes a kernel that lies on this machine; the entry is reused while image and version are the same.
fn given(cache: &Cache, source: &Source, wanted: Use) -> Result<Kernel> {
    let stamp = stamp(&source.image)?;
    let name = format!("kernels/{}", source.version);
    if let (Some(facts), Some(kernel)) = (cache.verified(&name), cached(cache, &source.version)) {
        if facts.get("stamp") == Some(&stamp) {
            return Ok(kernel);
        }
    }
    import(cache, source, wanted)
}

/// What tells one image file from another without reading it: path, length and time of change.
fn stamp(image: &Path) -> Result<String> {
    let metadata = fs::metadata(image).with_context(|| {
        format!("cannot read {} (this machine's kernel may need root)", image.display())
    })?;
    let changed = metadata.modified()?.duration_since(std::time::UNIX_EPOCH)?.as_nanos();
    Ok(format!("{} {} {changed}", image.display(), metadata.len()))
}

/// Checks a kernel and makes a cache entry of it.
fn import(cache: &Cache, source: &Source, wanted_for: Use) -> Result<Kernel> {
    let version = &source.version;
    let config = fs::read_to_string(&source.config)
        .with_context(|| format!("cannot read {}", source.config.display()))?;
    kernel_config::check(&config, wanted_for)
        .with_context(|| format!("kernel {version} cannot be used"))?;
    let built = cache.scratch()?;
    let image = fs::read(&source.image)
        .with_context(|| format!("cannot read {}", source.image.display()))?;
    write_file(&built.path().join("vmlinuz"), &image)?;
    write_file(&built.path().join("config"), config.as_bytes())?;
    let mut facts = Facts::from([("stamp".to_owned(), stamp(&source.image)?)]);
    for (name, wanted) in wanted() {
        let dir = built.path().join(name);
        fs::create_dir(&dir)?;
        for (index, module) in modules::collect(&source.modules, wanted)?.iter().enumerate() {
            write_file(&dir.join(format!("{index:02}-{}.ko", module.name)), &module.data)?;
        }
        facts.insert(name.to_owned(), wanted.join(" "));
    }
    let dir = cache.publish(&built.keep(), &format!("kernels/{version}"), &facts)?;
    Ok(Kernel { version: version.clone(), dir })
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: &str = "CONFIG_SCHED_CLASS_EXT=y\nCONFIG_DEBUG_INFO_BTF=y\nCONFIG_BPF_JIT=y\n\
                          CONFIG_KVM=m\nCONFIG_BLK_DEV_INITRD=y\n";

    fn put(path: &Path, data: &[u8]) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, data).unwrap();
    }

    /// A tree as packages unpack to: the old layout has image and config in /boot.
    fn tree(version: &str, split: bool, config: &str) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let modules = root.path().join("usr/lib/modules").join(version);
        let boot = |name: &str| {
            if split {
                modules.join(name)
            } else {
                root.path().join(format!("boot/{name}-{version}"))
            }
        };
        put(&boot("vmlinuz"), b"image");
        put(&boot("config"), config.as_bytes());
        put(&modules.join("kernel/kvm.ko"), b"\0depends=\0");
        put(&modules.join("kernel/kvm-amd.ko"), b"\0depends=kvm\0");
        put(&modules.join("kernel/virtio_blk.ko"), b"\0depends=\0");
        put(&modules.join("kernel/virtio_net.ko"), b"\0depends=\0");
        put(&modules.join("kernel/tun.ko"), b"\0depends=\0");
        root
    }

    fn cache() -> (tempfile::TempDir, Cache) {
        let home = tempfile::tempdir().unwrap();
        let cache = Cache::at(home.path()).unwrap();
        (home, cache)
    }

    #[test]
    fn both_layouts_of_packages_are_imported() {
        for split in [false, true] {
            let (_home, cache) = cache();
            let root = tree("7.0.1-x", split, CONFIG);
            let kernel =
                import(&cache, &Source::of_tree(root.path(), "7.0.1-x").unwrap(), Use::Schedule)
                    .unwrap();
            assert_eq!(fs::read(kernel.image()).unwrap(), b"image");
            assert_eq!(fs::read_to_string(kernel.config()).unwrap(), CONFIG);
            let modules = kernel.modules().unwrap();
            assert!(modules[0].ends_with("00-kvm.ko") && modules[1].ends_with("01-kvm_amd.ko"));
            assert_eq!(modules.len(), 2, "guests have their own");
            assert!(kernel.network_modules().unwrap()[0].ends_with("00-tun.ko"));
            let [of_guests, network] = kernel.guest_modules().unwrap();
            assert!(of_guests[0].ends_with("00-virtio_blk.ko"));
            assert!(network[0].ends_with("00-virtio_net.ko"));
            assert_eq!(cached(&cache, "7.0.1-x").unwrap(), kernel);
        }
    }

    #[test]
    fn a_kernel_without_sched_ext_is_refused_with_the_reason() {
        let (_home, cache) = cache();
        let root = tree("6.1.0", true, "CONFIG_KVM=m\n");
        let error = import(&cache, &Source::of_tree(root.path(), "6.1.0").unwrap(), Use::Schedule)
            .unwrap_err();
        let message = format!("{error:#}");
        assert!(message.starts_with(
            "kernel 6.1.0 cannot be used: it is built without CONFIG_SCHED_CLASS_EXT"
        ));
    }

    #[test]
    fn a_tree_without_modules_is_refused() {
        let root = tree("7.0.1", true, CONFIG);
        let message = Source::of_tree(root.path(), "7.0.2").unwrap_err().to_string();
        assert_eq!(message, "kernel 7.0.2 has no image in /boot or /lib/modules");
    }

    #[test]
    fn versions_in_the_cache_are_chosen_by_prefix_and_number() {
        let (_home, cache) = cache();
        for version in ["6.18.9", "6.18.15", "7.2.1"] {
            let root = tree(version, true, CONFIG);
            import(&cache, &Source::of_tree(root.path(), version).unwrap(), Use::Schedule).unwrap();
        }
        assert_eq!(newest_cached(&cache, None).unwrap().version, "7.2.1");
        assert_eq!(newest_cached(&cache, Some("6.18")).unwrap().version, "6.18.15");
        assert!(newest_cached(&cache, Some("6.1")).is_none());
        put(&cache.path("kernels/7.2.1/vmlinuz"), b"cut");
        assert_eq!(newest_cached(&cache, None).unwrap().version, "6.18.15");
    }

    #[test]
    fn the_default_is_the_one_fetched_as_such_not_the_newest() {
        let (_home, cache) = cache();
        for version in ["6.18.9", "7.2.1"] {
            let root = tree(version, true, CONFIG);
            import(&cache, &Source::of_tree(root.path(), version).unwrap(), Use::Schedule).unwrap();
        }
        assert!(default_cached(&cache).is_none());
        put(&cache.path(DEFAULT_NAME), b"6.18.9\n");
        assert_eq!(default_cached(&cache).unwrap().version, "6.18.9");
        put(&cache.path("kernels/6.18.9/config"), b"");
        assert!(default_cached(&cache).is_none());
    }

    #[test]
    fn offline_a_cached_kernel_is_taken_and_said_so() {
        let (_home, cache) = cache();
        let trouble = anyhow::anyhow!("no network");
        let no_host = || bail!("it has no modules");
        let message = instead_of_fetched(&cache, &trouble, no_host, &mut |_| {}).unwrap_err();
        let message = message.to_string();
        assert!(message.contains("(no network)") && message.contains("(it has no modules)"));
        assert!(message.contains("--kernel PATH") && !message.contains('\n'), "{message}");
        let root = tree("7.2.1", true, CONFIG);
        import(&cache, &Source::of_tree(root.path(), "7.2.1").unwrap(), Use::Schedule).unwrap();
        let mut told = String::new();
        let kernel =
            instead_of_fetched(&cache, &trouble, no_host, &mut |line| told.push_str(line)).unwrap();
        assert_eq!(kernel.version, "7.2.1");
        assert_eq!(told, "no kernel could be fetched (no network); taking 7.2.1");
    }

    #[test]
    fn a_given_kernel_is_imported_again_when_its_image_changes() {
        let (_home, cache) = cache();
        let root = tree("7.3.0", true, CONFIG);
        let source = Source::of_tree(root.path(), "7.3.0").unwrap();
        given(&cache, &source, Use::Schedule).unwrap();
        let entry = cache.path("kernels/7.3.0/manifest.json");
        let first = fs::metadata(&entry).unwrap().modified().unwrap();
        given(&cache, &source, Use::Schedule).unwrap();
        assert_eq!(fs::metadata(&entry).unwrap().modified().unwrap(), first, "not made again");
        put(&source.image, b"another image");
        let kernel = given(&cache, &source, Use::Schedule).unwrap();
        assert_eq!(fs::read(kernel.image()).unwrap(), b"another image");
    }

    #[test]
    fn an_image_with_its_tree_beside_it_needs_nothing_else() {
        let root = tempfile::tempdir().unwrap();
        let mut image = vec![0; 0x400];
        image[0x202..0x206].copy_from_slice(b"HdrS");
        image[0x20e..0x210].copy_from_slice(&0x100u16.to_le_bytes());
        image[0x300..0x306].copy_from_slice(b"9.9.9 ");
        put(&root.path().join("vmlinuz"), &image);
        let path = root.path().join("vmlinuz");
        assert!(
            Source::of_image(&path)
                .unwrap_err()
                .to_string()
                .contains("9.9.9 has no configuration file")
        );
        put(&root.path().join("config"), CONFIG.as_bytes());
        put(&root.path().join("kernel/kvm.ko"), b"");
        let source = Source::of_image(&path).unwrap();
        assert_eq!((source.version.as_str(), source.image), ("9.9.9", path));
    }

    #[test]
    fn the_version_stands_in_the_image() {
        let mut image = vec![0; 0x400];
        image[0x202..0x206].copy_from_slice(b"HdrS");
        image[0x20e..0x210].copy_from_slice(&0x100u16.to_le_bytes());
        image[0x300..0x30d].copy_from_slice(b"7.2.1-x (a@b)");
        assert_eq!(image_version(&image).unwrap(), "7.2.1-x");
        image[0x202] = b'X';
        assert_eq!(image_version(&image), None);
        assert_eq!(image_version(b"short"), None);
    }

    #[test]
    fn choices_are_read_from_the_command_line() {
        assert_eq!(KernelChoice::parse("host").unwrap(), KernelChoice::Host);
        assert_eq!(KernelChoice::parse("6.18").unwrap(), KernelChoice::Version("6.18".into()));
        assert_eq!(
            KernelChoice::parse("./vmlinuz").unwrap(),
            KernelChoice::Image("./vmlinuz".into())
        );
        assert!(KernelChoice::parse("newest").is_err());
    }
}
