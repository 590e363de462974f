// SPDX-License-Identifier: GPL-2.0-only
//! The page as a browser asks for it.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;

use super::*;

/// Serves a page until the test ends: its address.
fn served(ask: impl Fn(u32, u32) -> Result<History> + Send + Sync + 'static) -> String {
    let page = Page::at(0).unwrap();
    let address = page.address().unwrap();
    thread::spawn(move || page.serve(Arc::new(ask)));
    address
}

fn past(seconds: u32, step_s: u32) -> Result<History> {
    Ok(History {
        begun_unix_s: 1000.0,
        kept_s: seconds,
        step_s,
        first_step: 0,
        steps: 0,
        vms: Vec::new(),
    })
}

/// What is answered to a request for that path, by that name of the host.
fn get(address: &str, host: Option<&str>, path: &str) -> String {
    let at = address.strip_prefix("http://").unwrap().split('/').next().unwrap();
    let mut stream = TcpStream::connect(at).unwrap();
    let host = host.unwrap_or(at);
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn path(address: &str) -> &str {
    &address[address.rfind(":").unwrap()..]
        [address[address.rfind(":").unwrap()..].find('/').unwrap()..]
}

#[test]
fn the_page_and_all_it_loads_come_from_here() {
    let address = served(past);
    let folder = path(&address);
    for (name, kind, text) in FILES {
        let answer = get(&address, None, &format!("{folder}{}", &name[1..]));
        assert!(answer.starts_with("HTTP/1.1 200 "), "{name}: {answer}");
        assert!(answer.contains(kind) && answer.ends_with(text), "{name}");
        assert!(answer.contains("default-src 'none'") && answer.contains("no-store"), "{name}");
    }
    let page = FILES[0].2;
    for other in ["http://", "https://", "//", " style=", "<script>", " onclick="] {
        assert!(!page.contains(other), "{other}");
    }
    assert!(get(&address, None, &format!("{folder}LICENSE.uPlot")).contains("Leon Sorokin"));
}

#[test]
fn figures_are_those_of_the_daemon_or_its_reason() {
    let address = served(past);
    let asked = format!("{}history?seconds=600&step=2", path(&address));
    let answer = get(&address, None, &asked);
    assert!(answer.contains("\"kept_s\":600,\"step_s\":2"), "{answer}");
    let answer = get(&address, None, &format!("{}history?seconds=x", path(&address)));
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    let address = served(|_, _| anyhow::bail!("no drover is running here"));
    let answer = get(&address, None, &asked.replace(&asked[1..33], &path(&address)[1..33]));
    assert!(answer.starts_with("HTTP/1.1 503 ") && answer.ends_with("running here"), "{answer}");
}

#[test]
fn who_lacks_the_key_or_comes_by_anothers_name_is_told_nothing() {
    let address = served(past);
    let folder = path(&address);
    for other in ["/", "/history?seconds=1&step=1", "/page.js", &folder[..20], "//", "/../"] {
        let answer = get(&address, None, other);
        assert!(answer.starts_with("HTTP/1.1 404 "), "{other}: {answer}");
        assert!(!answer.contains(&folder[1..33]), "{answer}");
    }
    let answer = get(&address, Some("evil.example"), folder);
    assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
    assert!(!answer.contains("Drover"), "{answer}");
    assert_ne!(key().unwrap(), key().unwrap());
}

#[test]
fn it_listens_on_this_host_alone() {
    let page = Page::at(0).unwrap();
    assert!(page.listener.local_addr().unwrap().ip().is_loopback());
    let taken = page.listener.local_addr().unwrap().port();
    let err = Page::at(taken).unwrap_err();
    assert!(format!("{err:#}").contains("--port"), "{err:#}");
}
