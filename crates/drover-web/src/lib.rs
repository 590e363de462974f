// SPDX-License-Identifier: GPL-2.0-only
//! `drover web`: a page on this host alone with what VMs got, were owed and waited for. It is read only.
//!
//! Whoever starts it sees there what the daemons tell them. Other users of the host can connect to the port, too, and so can
//! pages of other sites in the browser: the key in the address keeps out the former, [`guard`] the latter.

mod guard;

use std::fmt::Write;
use std::fs::File;
use std::io::Read;
use std::net::{Ipv4Addr, TcpListener};
use std::sync::Arc;

use anyhow::{Context, Result};
use axum::extract::{Query, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Router, middleware};
use drover_host::status::History;
use serde::Deserialize;

/// Says what happened in the last so many seconds, in steps of so many.
pub type Ask = dyn Fn(u32, u32) -> Result<History> + Send + Sync;

/// What the page is made of: name, kind, content.
const FILES: [(&str, &str, &str); 5] = [
    ("/", "text/html; charset=utf-8", include_str!("../page/page.html")),
    ("/page.css", "text/css; charset=utf-8", include_str!("../page/page.css")),
    ("/page.js", "text/javascript; charset=utf-8", include_str!("../page/page.js")),
    ("/uPlot.css", "text/css; charset=utf-8", include_str!("../page/uplot/uPlot.min.css")),
    (
        "/uPlot.js",
        "text/javascript; charset=utf-8",
        include_str!("../page/uplot/uPlot.iife.min.js"),
    ),
];
const UPLOT_LICENSE: &str = include_str!("../page/uplot/LICENSE");

/// The page, before it is served.
#[derive(Debug)]
pub struct Page {
    listener: TcpListener,
    key: String,
}

impl Page {
    /// Takes that port of this host; 0: any that is free.
    ///
    /// # Errors
    /// When another program has it.
    pub fn at(port: u16) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))
            .with_context(|| format!("cannot listen on port {port}; choose another with --port"))?;
        Ok(Self { listener, key: key()? })
    }

    /// Where a browser finds it.
    ///
    /// # Errors
    /// Never, once it listens.
    pub fn address(&self) -> Result<String> {
        Ok(format!("http://{}/{}/", self.listener.local_addr()?, self.key))
    }

    /// Serves it until this program ends.
    ///
    /// # Errors
    /// When the kernel has no memory for it.
    pub fn serve(self, ask: Arc<Ask>) -> Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
        runtime.block_on(async move {
            self.listener.set_nonblocking(true)?;
            let listener = tokio::net::TcpListener::from_std(self.listener)?;
            Ok(axum::serve(listener, routes(&self.key, ask)).await?)
        })
    }
}

/// 128 random bits.
fn key() -> Result<String> {
    let mut bytes = [0; 16];
    let read = File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes));
    read.context("cannot read /dev/urandom")?;
    let mut key = String::new();
    bytes.iter().try_for_each(|byte| write!(key, "{byte:02x}"))?;
    Ok(key)
}

fn routes(key: &str, ask: Arc<Ask>) -> Router {
    let mut page = Router::new().route("/history", get(history)).with_state(ask);
    for (name, kind, text) in FILES {
        page = page.route(name, get(([(header::CONTENT_TYPE, kind)], text)));
    }
    page = page.route("/LICENSE.uPlot", get(UPLOT_LICENSE));
    let root = format!("/{key}/");
    // `nest` has no route for the folder itself with its slash.
    let index = get(([(header::CONTENT_TYPE, FILES[0].1)], FILES[0].2));
    Router::new()
        .route(&root, index)
        .nest(&format!("/{key}"), page)
        .layer(middleware::map_response(confined))
        .layer(middleware::from_fn(guard::check))
}

/// What the browser is told that the page may do: load from here, and nothing else.
async fn confined(mut response: Response) -> Response {
    let told = [
        (
            header::CONTENT_SECURITY_POLICY,
            "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; \
             base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
        ),
        (header::CACHE_CONTROL, "no-store"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
    ];
    for (name, value) in told {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

/// What the page asks for.
#[derive(Deserialize)]
struct Asked {
    seconds: u32,
    step: u32,
}

async fn history(State(ask): State<Arc<Ask>>, Query(asked): Query<Asked>) -> Response {
    let told = tokio::task::spawn_blocking(move || {
        let history = ask(asked.seconds, asked.step)?;
        anyhow::Ok(serde_json::to_vec(&history)?)
    });
    match told.await {
        Ok(Ok(json)) => ([(header::CONTENT_TYPE, "application/json")], json).into_response(),
        Ok(Err(err)) => (StatusCode::SERVICE_UNAVAILABLE, format!("{err:#}")).into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

#[cfg(test)]
mod tests;
