//! What another shard answers a recovering leader, in as many messages as it takes: a frame that is longer than the network takes
//! never arrives.

use crate::record::Item;
use shoal_types::Ballot;
use shoal_types::wire::Coded;
use std::collections::BTreeMap;

/// An answer has no more messages.
const PARTS_MAX: u32 = 1 << 12;

/// Which of the messages that make up an answer one is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Coded)]
pub struct AnswerPart {
    /// Counts the answers of its leader: parts of several are not put together, since each says what one state has.
    #[coded(short)]
    pub number: u64,
    /// The place of the message among the others.
    #[coded(short)]
    pub place: u32,
    /// How many there are.
    #[coded(short)]
    pub parts: u32,
}

/// An answer, as far as it has come.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    /// The ballot of the leader that has answered.
    pub(crate) ballot: Ballot,
    number: u64,
    parts: u32,
    received: BTreeMap<u32, Vec<Item>>,
}

impl Answer {
    /// A message of it comes. A later answer replaces one that is not whole.
    pub(crate) fn receive(&mut self, ballot: Ballot, part: AnswerPart, items: Vec<Item>) {
        let AnswerPart { number, place, parts } = part;
        let is_older = (ballot, number) < (self.ballot, self.number);
        if place >= parts
            || parts > PARTS_MAX
            || is_older
            || self.is_whole() && ballot == self.ballot
        {
            return;
        }
        if (ballot, number, parts) != (self.ballot, self.number, self.parts) {
            *self = Answer { ballot, number, parts, received: BTreeMap::new() };
        }
        self.received.insert(place, items);
    }

    /// Whether all of it has come.
    pub(crate) fn is_whole(&self) -> bool {
        self.parts > 0 && self.received.len() == self.parts as usize
    }

    /// What it says.
    pub(crate) fn items(&self) -> impl Iterator<Item = &Item> {
        self.received.values().flatten()
    }
}

/// The messages of an answer: each has items of so many bytes and one item at most.
pub(crate) fn in_parts(
    number: u64,
    items: Vec<Item>,
    bytes_max: usize,
) -> Vec<(AnswerPart, Vec<Item>)> {
    let (mut all, mut gathered, mut bytes) = (Vec::new(), Vec::new(), 0);
    for item in items {
        bytes += item.bytes();
        gathered.push(item);
        if bytes >= bytes_max {
            all.push(std::mem::take(&mut gathered));
            bytes = 0;
        }
    }
    if !gathered.is_empty() || all.is_empty() {
        all.push(gathered);
    }
    let parts = all.len() as u32;
    let part = |place| AnswerPart { number, place, parts };
    (0..).zip(all).map(|(place, items)| (part(place), items)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stamp::Stamp;
    use shoal_engine::TransactionId;
    use shoal_types::{Epoch, NodeId, Time, WorkerId};

    fn waiting(t: u64) -> Item {
        let id = TransactionId { node: NodeId(0), worker: WorkerId(0), sequence: t };
        Item::Waiting { stamp: Stamp { t: Time(t), id } }
    }

    fn ballot(epoch: u32) -> Ballot {
        Ballot { epoch: Epoch(epoch), ..Ballot::default() }
    }

    #[test]
    fn an_answer_is_whole_once_all_parts_of_it_have_come() {
        let items: Vec<Item> = (0..5).map(waiting).collect();
        let parts = in_parts(7, items.clone(), 2 * waiting(0).bytes());
        assert_eq!(parts.len(), 3);
        let mut answer = Answer::default();
        for (part, items) in parts.into_iter().rev() {
            assert!(!answer.is_whole());
            answer.receive(ballot(1), part, items.clone());
            answer.receive(ballot(1), part, items);
        }
        assert!(answer.is_whole());
        assert_eq!(answer.items().cloned().collect::<Vec<Item>>(), items);
    }

    #[test]
    fn an_answer_that_says_nothing_is_one_message() {
        let parts = in_parts(7, Vec::new(), 100);
        assert_eq!(parts, [(AnswerPart { number: 7, place: 0, parts: 1 }, Vec::new())]);
        let mut answer = Answer::default();
        answer.receive(Ballot::default(), parts[0].0, Vec::new());
        assert!(answer.is_whole());
    }

    /// Half of what one state has and half of what a later one has is what none had.
    #[test]
    fn parts_of_several_answers_are_not_put_together() {
        let part = |number, place| AnswerPart { number, place, parts: 2 };
        let mut answer = Answer::default();
        answer.receive(ballot(1), part(1, 0), vec![waiting(1)]);
        answer.receive(ballot(1), part(2, 1), vec![waiting(2)]);
        assert!(!answer.is_whole());
        answer.receive(ballot(1), part(1, 1), vec![waiting(1)]);
        assert!(!answer.is_whole(), "an older one is late");
        answer.receive(ballot(1), part(2, 0), vec![waiting(2)]);
        assert!(answer.is_whole());
        answer.receive(ballot(2), part(1, 0), vec![waiting(3)]);
        assert!(!answer.is_whole(), "another leader answers");
        answer.receive(ballot(2), AnswerPart { number: 1, place: 3, parts: 2 }, Vec::new());
        assert!(!answer.is_whole(), "there is no such part");
    }
}
