//! Faults that come and go: links that are clogged or cut, workers that stand still, nodes that nobody
//! hears.

use crate::network::Troubles;
use types::Random;

/// What goes wrong in a run, and how often.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Weather {
    /// What happens to single messages.
    pub troubles: Troubles,
    /// On average, so long from one of the following to the next; 0 for never.
    pub every_ns: u64,
    /// The longest that one of them lasts.
    pub longest_ns: u64,
    /// How likely each of them is.
    pub weights: Weights,
}

/// How likely each fault is, compared with the others.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Weights {
    /// A link is clogged, one way.
    pub clog: u32,
    /// A link is cut, one way.
    pub cut: u32,
    /// All links to and from a node are clogged.
    pub silence: u32,
    /// A worker stands still.
    pub stall: u32,
}

/// One fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blow {
    /// Nothing arrives over the link between these two ends.
    Clog(usize, usize),
    /// What is sent over the link between these two ends is lost.
    Cut(usize, usize),
    /// Nothing arrives at or from this node.
    Silence(usize),
    /// This worker, counted over all nodes, does nothing.
    Stall(usize),
}

impl Weather {
    /// Draws the next fault of a cluster and how long it lasts. Ends of links are the nodes and, after
    /// them, the clients outside.
    pub fn draw(
        &self,
        random: &mut Random,
        nodes: usize,
        clients: usize,
        workers: usize,
    ) -> (Blow, u64) {
        let Weights { clog, cut, silence, stall } = self.weights;
        let all = [clog, cut, silence, stall].map(u64::from);
        let mut lot = random.below(all.iter().sum::<u64>().max(1));
        let node = random.below(nodes as u64) as usize;
        let end = random.below((nodes + clients) as u64) as usize;
        let (one, other) = if random.chance(1, 2) { (node, end) } else { (end, node) };
        let kinds = [
            Blow::Clog(one, other),
            Blow::Cut(one, other),
            Blow::Silence(node),
            Blow::Stall(random.below(workers as u64) as usize),
        ];
        let mut blow = kinds[3];
        for (kind, weight) in kinds.into_iter().zip(all) {
            if lot < weight {
                blow = kind;
                break;
            }
            lot -= weight;
        }
        // Short ones are more likely, as in life.
        let longest = self.longest_ns >> random.below(6);
        (blow, 1 + random.below(longest.max(1)))
    }

    /// Draws how long it takes until the next fault.
    pub fn pause_ns(&self, random: &mut Random) -> u64 {
        1 + random.below(2 * self.every_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_has_a_weight_happens() {
        let weights = Weights { cut: 3, ..Weights::default() };
        let weather = Weather { longest_ns: 100, weights, ..Weather::default() };
        let mut random = Random::new(1);
        for _ in 0..1000 {
            let (blow, lasts) = weather.draw(&mut random, 3, 2, 3);
            assert!(
                matches!(blow, Blow::Cut(0..=2, 0..=4) | Blow::Cut(0..=4, 0..=2))
                    && (1..=100).contains(&lasts)
            );
        }
    }
}
