//! Clients outside, their connections to workers, and the messages on these.
//!
//! ```text
//!   Process ── Dial ─────► Item::Dial ────► node: is it up? ──► Item::Dialed ──► Process
//!           ── Send ─────► Item::Request, Item::Asked ──► worker ──► Item::Said ──► Process
//!   a crash, a message that breaks it ──────────────────────────► Item::Lost ──► Process
//! ```
//! A connection belongs to one process of a node, which identifies the client by it: the [`ClientId`]
//! consists of the number of the client and that of the connection.

use super::connected_process::{AcceptedConnection, ConnectedProcess};
use super::{Simulation, SimulationEvent};
use crate::clients::process::{ClientProcess, ConnectionNumber, ProcessOutput};
use crate::observed::Simulated;
use shoal_engine::WorkerPlace;
use shoal_engine::client::{ClientId, Directory, FromClient, RequestFromClient, ToClient};
use shoal_types::{Cause, NodeId, Time};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The id by which a node knows a connection of a client.
fn name(client: u32, number: ConnectionNumber) -> ClientId {
    ClientId(u64::from(client) << 32 | u64::from(number))
}

/// The client, and the number of the connection, of an id.
fn client_of(ClientId(name): ClientId) -> (u32, ConnectionNumber) {
    ((name >> 32) as u32, name as u32)
}

impl<E: Simulated> Simulation<E> {
    /// Adds a client outside: the next of those declared in the environment.
    pub fn admit(&mut self, process: ClientProcess) {
        let client = self.outsiders.len() as u32;
        self.outsiders.push(ConnectedProcess {
            process,
            wake_at: self.now,
            connections: BTreeMap::new(),
            last_call: None,
            asked_again: 0,
        });
        self.queue.push(self.now, SimulationEvent::ClientTimer { client });
    }

    /// From now on this percentage of lost messages of clients breaks their connection instead of being sent
    /// again.
    pub fn break_connections(&mut self, percent: u32) {
        self.broken_percent = percent;
    }

    /// Runs a client outside, and does what it asks for.
    pub(super) fn poll(&mut self, client: u32) {
        let outsider = &mut self.outsiders[client as usize];
        outsider.process.run(self.now);
        while let Some(wanted) = self.outsiders[client as usize].process.wanted() {
            match wanted {
                ProcessOutput::Dial(number, place) => self.dial(client, number, place),
                ProcessOutput::Send(number, what) => self.send_from(client, number, what),
                ProcessOutput::Close(number) => self.close(client, number),
            }
        }
        let outsider = &mut self.outsiders[client as usize];
        let wake_at = outsider.process.wake_at();
        if wake_at < outsider.wake_at {
            outsider.wake_at = wake_at;
            self.queue.push(wake_at, SimulationEvent::ClientTimer { client });
        }
    }

    pub(super) fn client_timer(&mut self, client: u32) {
        let wake_at = &mut self.outsiders[client as usize].wake_at;
        // Another one was asked for meanwhile.
        if *wake_at == self.now {
            *wake_at = Time::MAX;
            self.poll(client);
        }
    }

    /// When a message between a client and a node arrives, and whether it had to be sent again.
    fn carry(&mut self, client: u32, place: WorkerPlace, to_node: bool, at: Time) -> (Time, bool) {
        let ends = (self.cluster.clocks.len() + client as usize, place.node.0 as usize);
        let (from, to) = if to_node { ends } else { (ends.1, ends.0) };
        self.network.carry(at, from, to, place.worker.0 as usize)
    }

    fn dial(&mut self, client: u32, number: ConnectionNumber, place: WorkerPlace) {
        self.note(|now, trace| trace.note(now, format_args!("client {client} dials {place}")));
        let (at, _) = self.carry(client, place, true, self.now);
        let simulated_worker = self.cluster.worker_at(place) as u32;
        self.queue
            .push(at, SimulationEvent::Dial { client, number, simulated_worker, waits: true });
    }

    /// When a worker is free that is busy now. What comes over sockets takes its turn then, however much the worker has
    /// to do.
    pub(super) fn busy_until(&self, simulated_worker: u32) -> Option<Time> {
        let busy_until = self.cluster.simulated_workers[simulated_worker as usize].busy_until;
        Some(busy_until).filter(|at| *at > self.now)
    }

    /// A client wants to connect to a worker.
    pub(super) fn dialed_by(
        &mut self,
        client: u32,
        number: ConnectionNumber,
        simulated_worker: u32,
    ) {
        let state = &self.cluster.simulated_workers[simulated_worker as usize];
        let (place, is_up) = (state.place, state.worker.is_some() && state.has_begun);
        // The process or the machine has ended.
        if !is_up && self.random.chance(1, 2) {
            return;
        }
        let answer = if is_up { Ok(place) } else { Err(Cause::NotListening) };
        if is_up {
            let instance = self.cluster.instances[place.node.0 as usize];
            let connected = AcceptedConnection {
                simulated_worker,
                instance,
                is_lost: false,
                last_step: (0, 0),
            };
            self.outsiders[client as usize].connections.insert(number, connected);
        }
        let (at, _) = self.carry(client, place, false, self.now);
        self.queue.push(at, SimulationEvent::Dialed { client, number, answer });
    }

    pub(super) fn dialed(
        &mut self,
        client: u32,
        number: ConnectionNumber,
        answer: Result<WorkerPlace, Cause>,
    ) {
        self.outsiders[client as usize].process.dialed(number, answer);
        self.poll(client);
    }

    fn send_from(&mut self, client: u32, number: ConnectionNumber, what: FromClient) {
        let outsider = &mut self.outsiders[client as usize];
        let Some(connected) = outsider.connections.get(&number).filter(|it| !it.is_lost) else {
            return;
        };
        let (simulated_worker, instance) = (connected.simulated_worker, connected.instance);
        let place = self.cluster.simulated_workers[simulated_worker as usize].place;
        let from = name(client, number);
        if let FromClient::Request(request) = &what {
            outsider.count(number, request);
            if let Some(checks) = &mut self.checks {
                checks.asked(from, request);
            }
        }
        self.note(|now, trace| {
            trace.note(now, format_args!("client {client}.{number} asks {place} {what:?}"));
        });
        let (at, again) = self.carry(client, place, true, self.now);
        if again && self.breaks() {
            return self.break_connection(client, number);
        }
        match what {
            FromClient::Request(request) => {
                let request = RequestFromClient { from, request };
                let late = self.late.pass((simulated_worker, request.clone()));
                let event = SimulationEvent::Request { simulated_worker, instance, request };
                self.queue.push(at, event);
                if let Some(late) = late {
                    self.deliver_copy(Time(self.now.0 + 1), late);
                }
            }
            FromClient::Directory => {
                self.queue.push(
                    at,
                    SimulationEvent::Asked { simulated_worker, instance, from, waits: true },
                );
            }
            FromClient::Status | FromClient::Isolate(_) => {
                unreachable!("clients of a simulation do not operate its nodes")
            }
        }
    }

    fn breaks(&mut self) -> bool {
        self.broken_percent > 0 && self.random.below(100) < u64::from(self.broken_percent)
    }

    /// The client ends a connection.
    fn close(&mut self, client: u32, number: ConnectionNumber) {
        self.outsiders[client as usize].connections.remove(&number);
        if let Some(checks) = &mut self.checks {
            checks.hung_up(name(client, number));
        }
    }

    /// A connection breaks: messages in flight to the client arrive before it learns of that.
    fn break_connection(&mut self, client: u32, number: ConnectionNumber) {
        let Some(connected) = self.outsiders[client as usize].connections.get_mut(&number) else {
            return;
        };
        connected.is_lost = true;
        let place = self.cluster.simulated_workers[connected.simulated_worker as usize].place;
        self.work.connections_broken += 1;
        let (at, _) = self.carry(client, place, false, self.now);
        self.queue.push(at, SimulationEvent::Lost { client, number });
    }

    /// A node's process has ended, and its connections with it.
    pub(super) fn break_connections_to(&mut self, node: NodeId) {
        for client in 0..self.outsiders.len() {
            let simulated_workers = self.cluster.workers_of(node);
            let connections = &self.outsiders[client].connections;
            let there = connections.iter().filter(|(_, it)| {
                simulated_workers.contains(&(it.simulated_worker as usize)) && !it.is_lost
            });
            let numbers: Vec<ConnectionNumber> = there.map(|(number, _)| *number).collect();
            numbers.into_iter().for_each(|it| self.break_connection(client as u32, it));
        }
    }

    pub(super) fn connection_lost(&mut self, client: u32, number: ConnectionNumber) {
        self.note(|now, trace| trace.note(now, format_args!("client {client}.{number} is lost")));
        self.outsiders[client as usize].process.lose(self.now, number);
        self.close(client, number);
        self.poll(client);
    }

    /// A worker sends a message to a client, if the connection of the request is still open.
    pub(super) fn say(&mut self, at: Time, to: ClientId, said: ToClient) {
        let (client, number) = client_of(to);
        let connections = &self.outsiders[client as usize].connections;
        let Some(connected) = connections.get(&number).filter(|it| !it.is_lost) else { return };
        let place = self.cluster.simulated_workers[connected.simulated_worker as usize].place;
        if connected.instance != self.cluster.instances[place.node.0 as usize] {
            return;
        }
        let (at, again) = self.carry(client, place, false, at);
        if again && self.breaks() {
            return self.break_connection(client, number);
        }
        self.queue.push(at, SimulationEvent::Said { client, number, said });
    }

    /// A message arrives at a client.
    pub(super) fn receive(&mut self, client: u32, number: ConnectionNumber, said: ToClient) {
        self.work.replies += 1;
        self.note(|now, trace| {
            trace.note(now, format_args!("client {client}.{number} is told {said:?}"));
        });
        self.outsiders[client as usize].process.receive(self.now, number, said);
        self.poll(client);
    }

    /// A client asks a worker where everything is.
    pub(super) fn tell_directory(&mut self, simulated_worker: u32, instance: u32, from: ClientId) {
        let state = &self.cluster.simulated_workers[simulated_worker as usize];
        let node = state.place.node.0 as usize;
        let Some(worker) =
            state.worker.as_ref().filter(|_| self.cluster.instances[node] == instance)
        else {
            return;
        };
        let configuration = worker.configuration().cloned();
        let (topology, routing) = (Arc::clone(&self.topology), E::CLIENT_ROUTING);
        let directory = Directory { topology, configuration, routing };
        self.say(self.now, from, ToClient::Directory(directory));
    }
}
