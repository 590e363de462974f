// SPDX-License-Identifier: GPL-2.0-only
//! Keeps out requests that another site has a browser make.
//!
//! A site can have its own name lead to this host (DNS rebinding): the browser then takes the page for the site's, but still
//! asks for it by the site's name. So only names of this host are answered. A page of another site, or of another port, can
//! have the browser send requests; the browser says whose they are.

use axum::extract::Request;
use axum::http::{HeaderMap, Method, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

/// What this host calls itself. The port may be another's, of a tunnel.
const NAMES: [&str; 3] = ["127.0.0.1", "localhost", "[::1]"];

/// Answers what is asked by this page, and refuses all else.
pub async fn check(request: Request, next: Next) -> Response {
    match refusal(request.method(), request.uri(), request.headers()) {
        Some(refusal) => refusal.into_response(),
        None => next.run(request).await,
    }
}

/// Why a request is not answered.
fn refusal(method: &Method, uri: &Uri, headers: &HeaderMap) -> Option<(StatusCode, &'static str)> {
    let forbidden = |why| Some((StatusCode::FORBIDDEN, why));
    if ![Method::GET, Method::HEAD].contains(method) {
        return Some((StatusCode::METHOD_NOT_ALLOWED, "this page is read only\n"));
    }
    let Some(host) = only(headers, &header::HOST).filter(|host| is_of_this_host(host)) else {
        return forbidden("use the address that `drover web` has printed\n");
    };
    if uri.authority().is_some() {
        return forbidden("this is no proxy\n");
    }
    let origin = headers.contains_key(header::ORIGIN).then(|| only(headers, &header::ORIGIN));
    if origin.is_some_and(|origin| origin != Some(&format!("http://{host}"))) {
        return forbidden("another site's page may not ask here\n");
    }
    // Of a person who types an address, or of this page.
    let site = headers.get("sec-fetch-site").map(|site| site.as_bytes());
    if site.is_some_and(|site| ![&b"none"[..], b"same-origin"].contains(&site)) {
        return forbidden("another site's page may not ask here: type the address yourself\n");
    }
    None
}

/// The value of a header that is there once.
fn only<'a>(headers: &'a HeaderMap, name: &header::HeaderName) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?.to_str().ok()?;
    values.next().is_none().then_some(value)
}

fn is_of_this_host(host: &str) -> bool {
    let is_port = |rest: &str| {
        rest.strip_prefix(':').map_or(rest.is_empty(), |port| port.parse::<u16>().is_ok())
    };
    NAMES.iter().any(|name| host.strip_prefix(name).is_some_and(is_port))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(method: Method, uri: &str, headers: &[(&'static str, &str)]) -> u16 {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, value.parse().unwrap());
        }
        refusal(&method, &uri.parse().unwrap(), &map).map_or(200, |(status, _)| status.as_u16())
    }

    #[test]
    fn this_host_is_answered_by_its_own_names_only() {
        for host in ["127.0.0.1:8473", "localhost:8473", "localhost", "[::1]:9", "localhost:9000"] {
            assert_eq!(status(Method::GET, "/k/", &[("host", host)]), 200, "{host}");
        }
        let others = [
            "evil.example",
            "evil.example:8473",
            "localhost.evil.example",
            "127.0.0.1.evil.example:8473",
            "localhost:x",
            "localhost:",
            "127.0.0.10",
            "0.0.0.0:8473",
            "user@localhost",
            "",
        ];
        for host in others {
            assert_eq!(status(Method::GET, "/k/", &[("host", host)]), 403, "{host}");
        }
        assert_eq!(status(Method::GET, "/k/", &[]), 403, "without a name");
        let twice = [("host", "localhost"), ("host", "evil.example")];
        assert_eq!(status(Method::GET, "/k/", &twice), 403);
        assert_eq!(status(Method::GET, "http://evil.example/k/", &[("host", "localhost")]), 403);
    }

    #[test]
    fn pages_of_others_are_refused() {
        let asked = |more: &[(&'static str, &str)]| {
            let headers = [&[("host", "localhost:8473")][..], more].concat();
            status(Method::GET, "/k/history", &headers)
        };
        assert_eq!(asked(&[("origin", "http://localhost:8473")]), 200);
        let others = [
            "https://localhost:8473",
            "http://localhost",
            "http://localhost:3000",
            "http://127.0.0.1:8473",
            "https://evil.example",
            "null",
            "",
        ];
        for origin in others {
            assert_eq!(asked(&[("origin", origin)]), 403, "{origin}");
        }
        for (site, told) in [
            ("none", 200),
            ("same-origin", 200),
            ("same-site", 403),
            ("cross-site", 403),
            ("", 403),
        ] {
            assert_eq!(asked(&[("sec-fetch-site", site)]), told, "{site}");
        }
    }

    #[test]
    fn nothing_can_be_sent() {
        for method in [Method::POST, Method::PUT, Method::DELETE, Method::PATCH, Method::OPTIONS] {
            assert_eq!(status(method, "/k/", &[("host", "localhost")]), 405);
        }
        assert_eq!(status(Method::HEAD, "/k/", &[("host", "localhost")]), 200);
    }
}
