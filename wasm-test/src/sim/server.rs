//! Servers on sockets: start, kill, start again.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::sim::cache::BlockHash;
use crate::sim::config::SimConfig;
use crate::sim::connection::{reserve, serve};
use crate::sim::engine::Outlook;
use crate::sim::faults::Overrides;
use crate::sim::instance::{Instance, State};
use crate::sim::log::{LogEntry, RequestLog};
use crate::sim::stats::Stats;

/// Simulated servers that share a configuration. Dropping it kills them all.
#[derive(Debug)]
pub struct Sim {
    servers: Vec<SimServer>,
}

impl Sim {
    /// Starts `count` servers on free ports of 127.0.0.1, in the current tokio runtime.
    pub async fn start(config: &SimConfig, count: usize) -> io::Result<Self> {
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        Self::start_at(config, &vec![any; count]).await
    }

    /// Starts one server on each address; port 0 stands for any free port.
    pub async fn start_at(config: &SimConfig, addresses: &[SocketAddr]) -> io::Result<Self> {
        let mut servers = Vec::with_capacity(addresses.len());
        for address in addresses {
            let server = SimServer::start(config.clone(), *address).await;
            servers.push(server.map_err(|error| named(*address, &error))?);
        }
        Ok(Self { servers })
    }

    pub fn servers(&self) -> &[SimServer] {
        &self.servers
    }

    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.servers.iter().map(SimServer::address).collect()
    }
}

fn named(address: SocketAddr, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("cannot listen on {address}: {error}"))
}

impl std::ops::Index<usize> for Sim {
    type Output = SimServer;

    fn index(&self, index: usize) -> &SimServer {
        &self.servers[index]
    }
}

/// One simulated server. Dropping it kills it.
#[derive(Debug)]
pub struct SimServer {
    config: SimConfig,
    address: SocketAddr,
    log: Arc<RequestLog>,
    life: Mutex<Life>,
}

#[derive(Debug)]
struct Life {
    /// The latest life, also after it ended.
    instance: Arc<Instance>,
    running: Option<Running>,
    /// Keeps the port of a dead server from everybody else; nobody listens on it.
    reserved: Option<TcpSocket>,
}

/// Dropping `_kill` ends the task.
#[derive(Debug)]
struct Running {
    _kill: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl SimServer {
    /// Starts a server in the current tokio runtime; port 0 stands for any free port.
    pub async fn start(config: SimConfig, address: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let log = Arc::new(RequestLog::default());
        let life = Mutex::new(Life::begin(&config, address, &log, listener));
        Ok(Self {
            config,
            address,
            log,
            life,
        })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// `http://ip:port` followed by `path`.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Ends the server as SIGKILL would: the port is closed and every connection reset by the time
    /// this returns. State and log can still be read. Does nothing to a dead server.
    pub async fn kill(&self) {
        let running = self.life().running.take();
        if let Some(Running { _kill: kill, task }) = running {
            drop(kill);
            // The task ends by itself; a join error could only be its panic.
            let _ = task.await;
            self.life().reserved = reserve(self.address);
        }
    }

    /// Starts a dead server on its old port, with an empty cache, zeroed counters and the
    /// overrides it was first started with; a live one is killed first. Fails when somebody else took the port.
    pub async fn restart(&self) -> io::Result<()> {
        self.kill().await;
        self.life().reserved = None;
        let listener = TcpListener::bind(self.address).await?;
        let begun = Life::begin(&self.config, self.address, &self.log, listener);
        *self.life() = begun;
        Ok(())
    }

    pub fn is_running(&self) -> bool {
        self.life().running.is_some()
    }

    /// Counters, gauges and overrides, read directly.
    pub fn state(&self) -> State {
        self.instance().state()
    }

    /// What a prompt with these block hashes and tokens would meet at each engine. No real server
    /// tells; it is for routers that are to know everything.
    pub fn outlooks(&self, hashes: &[BlockHash], tokens: usize) -> Vec<Outlook> {
        let instance = self.instance();
        let engines = instance.engines.all().iter();
        engines
            .map(|engine| engine.outlook(hashes, tokens))
            .collect()
    }

    /// What each engine has counted in this life.
    pub fn stats(&self) -> Vec<Stats> {
        let observed = self.instance().engines.observe();
        observed.into_iter().map(|(stats, _)| stats).collect()
    }

    /// The last requests of all its lives, oldest first.
    pub fn log(&self) -> Vec<LogEntry> {
        self.log.entries()
    }

    /// Replaces all overrides; the default clears them.
    pub fn set_overrides(&self, overrides: Overrides) {
        self.instance().set_overrides(overrides);
    }

    /// Forgets the prefix caches; `false` while a request holds blocks.
    pub fn reset_prefix_cache(&self) -> bool {
        self.instance().engines.reset_prefix_cache()
    }

    fn instance(&self) -> Arc<Instance> {
        Arc::clone(&self.life().instance)
    }

    fn life(&self) -> std::sync::MutexGuard<'_, Life> {
        self.life.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Life {
    fn begin(
        config: &SimConfig,
        address: SocketAddr,
        log: &Arc<RequestLog>,
        listener: TcpListener,
    ) -> Self {
        let instance = Arc::new(Instance::new(config.clone(), address, Arc::clone(log)));
        let (kill, killed) = oneshot::channel();
        let task = tokio::spawn(serve(listener, Arc::clone(&instance), killed));
        Self {
            instance,
            running: Some(Running { _kill: kill, task }),
            reserved: None,
        }
    }
}
