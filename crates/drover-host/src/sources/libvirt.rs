// SPDX-License-Identifier: GPL-2.0-only
//! What libvirt's metadata of a domain says:
//! `<drover:cpu xmlns:drover="urn:drover:cpu" shares="high" reservation="150%" limit="200%" pool="prod"/>`.
//!
//! libvirt keeps elements of others in `<metadata>` and needs them in a namespace of their own. It writes
//! a running domain to /run/libvirt/qemu/NAME.xml and keeps its definition in /etc/libvirt/qemu/NAME.xml.

use crate::files;
use drover_core::asked::{Asked, Key};
use drover_core::resolve::Layer;
use roxmltree::Document;
use std::path::{Path, PathBuf};

/// The namespace of Drover's element.
pub const NAMESPACE: &str = "urn:drover:cpu";
/// The namespace of OpenStack's element, of any version.
const NOVA: &str = "http://openstack.org/xmlns/libvirt/nova/";
/// No domain's file is read that is longer: those of libvirt are some 10 KiB, and its metadata are whose domain it is.
const XML_MAX: usize = 1 << 20;
/// Where libvirt keeps domains, the running ones first.
pub const DIRS: [&str; 2] = ["/run/libvirt/qemu", "/etc/libvirt/qemu"];

/// The file libvirt has for a domain of that name in the first of `dirs` that has one.
pub fn file(dirs: &[&Path], name: &str) -> Option<PathBuf> {
    // A name is what a VMM's command line says: it must not lead elsewhere.
    if name.contains('/') || name.starts_with('.') {
        return None;
    }
    dirs.iter().map(|dir| dir.join(format!("{name}.xml"))).find(|file| file.is_file())
}

/// What that file asks; none where it says nothing.
///
/// # Errors
/// When it cannot be read or says what cannot be, in one line with the fix.
pub fn layer(file: &Path) -> Result<Option<Layer>, String> {
    let place = file.display();
    let text = files::text(file, XML_MAX).map_err(|error| format!("{place}: {error}"))?;
    let asked = asked(&text).map_err(|fault| format!("{place}: {fault}"))?;
    Ok(asked.map(|asked| Layer { origin: format!("libvirt {place}"), of_name: true, asked }))
}

/// Who a running domain is, as libvirt has it.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Its process.
    pub pid: Option<u32>,
    /// Its UUID.
    pub uuid: Option<String>,
    /// What OpenStack calls it, where it is an instance of OpenStack's.
    pub nova_name: Option<String>,
}

/// What that file says of who the domain is; nothing where it cannot be read.
pub fn facts(file: &Path) -> Facts {
    let text = files::text(file, XML_MAX).unwrap_or_default();
    let Ok(document) = Document::parse(&text) else { return Facts::default() };
    let pid = document.root_element().attribute("pid").and_then(|pid| pid.parse().ok());
    let Some(domain) = document.descendants().find(|node| node.has_tag_name("domain")) else {
        return Facts::default();
    };
    let uuid = domain.children().find(|node| node.has_tag_name("uuid"));
    let of_nova = |tag: &str| {
        let mut elements = document.descendants().filter(|node| node.tag_name().name() == tag);
        elements.find(|node| node.tag_name().namespace().is_some_and(|it| it.starts_with(NOVA)))
    };
    let nova_name = of_nova("instance").and(of_nova("name"));
    let text = |node: roxmltree::Node| node.text().map(|text| text.trim().to_owned());
    Facts { pid, uuid: uuid.and_then(text), nova_name: nova_name.and_then(text) }
}

fn asked(text: &str) -> Result<Option<Asked>, String> {
    let document = Document::parse(text).map_err(|error| format!("not whole: {error}"))?;
    let mut elements = document.descendants().filter(|node| node.has_tag_name((NAMESPACE, "cpu")));
    let Some(element) = elements.next() else { return Ok(None) };
    let mut asked = Asked::default();
    for attribute in element.attributes() {
        let Some(key) = Key::ALL.into_iter().find(|key| key.name() == attribute.name()) else {
            let known = Key::ALL.map(Key::name).join(", ");
            return Err(format!("unknown {} in drover:cpu; known are {known}", attribute.name()));
        };
        let value = attribute.value();
        asked
            .read(key, value)
            .map_err(|fix| format!("{}=\"{value}\" is invalid in drover:cpu; {fix}", key.name()))?;
    }
    Ok(Some(asked))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const STATUS: &str = "<domstatus state='running' pid='812'><domain type='kvm' id='1'>\
        <name>web</name><metadata>\
        <drover:cpu xmlns:drover='urn:drover:cpu' ATTRIBUTES/>\
        <other:cpu xmlns:other='urn:other' shares='1'/></metadata></domain></domstatus>";

    fn with(attributes: &str) -> Result<Option<Asked>, String> {
        asked(&STATUS.replace("ATTRIBUTES", attributes))
    }

    #[test]
    fn the_element_of_our_namespace_is_read() {
        let found =
            with("shares='high' reservation='150%' limit='none' pool='prod' cosched='gang'");
        let found = found.unwrap().unwrap();
        let texts: Vec<_> = Key::ALL.into_iter().filter_map(|key| found.text(key)).collect();
        assert_eq!(texts, ["high", "150%", "none", "prod", "gang"]);
        assert_eq!(asked("<domain><metadata/></domain>"), Ok(None));
        assert_eq!(asked("<domain><cpu shares='5'/></domain>"), Ok(None), "libvirt's own");
    }

    #[test]
    fn faults_name_what_is_wrong() {
        for (attributes, said) in [
            ("share='5'", "unknown share in drover:cpu; known are shares, reservation"),
            ("limit='2'", "limit=\"2\" is invalid in drover:cpu; use a percentage"),
        ] {
            assert!(with(attributes).unwrap_err().contains(said), "{attributes}");
        }
        let cut = &STATUS[..STATUS.len() / 2];
        assert!(asked(cut).unwrap_err().starts_with("not whole: "));
    }

    #[test]
    fn the_running_domain_goes_before_its_definition() {
        let dir = tempfile::tempdir().unwrap();
        let dirs = [dir.path().join("run"), dir.path().join("etc")];
        let both: Vec<&Path> = dirs.iter().map(PathBuf::as_path).collect();
        dirs.iter().for_each(|dir| fs::create_dir(dir).unwrap());
        fs::write(dirs[1].join("web.xml"), STATUS.replace("ATTRIBUTES", "shares='7'")).unwrap();
        let defined = file(&both, "web").unwrap();
        assert!(layer(&defined).unwrap().unwrap().origin.ends_with("etc/web.xml"));
        fs::write(dirs[0].join("web.xml"), STATUS.replace("ATTRIBUTES", "shares='8'")).unwrap();
        assert!(file(&both, "web").unwrap().ends_with("run/web.xml"));
        assert_eq!(file(&both, "db"), None);
        assert_eq!(file(&both, "../run/web"), None);
        // Whoever owns a domain has a say in its metadata.
        let long = "<!-- -->".repeat(XML_MAX / 8 + 1);
        fs::write(dirs[0].join("web.xml"), long + STATUS).unwrap();
        assert!(layer(&dirs[0].join("web.xml")).unwrap_err().contains("longer than 1024 KiB"));
        assert_eq!(facts(&dirs[0].join("web.xml")), Facts::default());
    }

    #[test]
    fn metadata_however_deep_end_nobody() {
        let deep = "<a>".repeat(XML_MAX / 7);
        assert!(asked(&deep).unwrap_err().starts_with("not whole: "));
        assert_eq!(asked(&(deep.clone() + &deep.replace('<', "</"))), Ok(None));
    }
}
