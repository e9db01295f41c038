//! A queue that one task empties in batches: what arrives while a batch runs is in a later one, and what arrives alone waits for none.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The items that wait for the next batch of this process.
#[derive(Debug)]
pub(crate) struct BatchQueue<T> {
    queue: Arc<Mutex<Queue<T>>>,
}

#[derive(Debug)]
struct Queue<T> {
    waiting: Vec<T>,
    /// Whether a task runs batches until none waits.
    is_running: bool,
}

impl<T> Clone for BatchQueue<T> {
    fn clone(&self) -> Self {
        Self { queue: Arc::clone(&self.queue) }
    }
}

impl<T> Default for BatchQueue<T> {
    fn default() -> Self {
        Self { queue: Arc::new(Mutex::new(Queue { waiting: Vec::new(), is_running: false })) }
    }
}

impl<T> BatchQueue<T> {
    /// Queues an item. Returns what runs the batches if no task does: the caller spawns one, because a caller that goes away must not
    /// end the batch of the others.
    pub(crate) fn push(&self, item: T) -> Option<Batches<T>> {
        let mut queue = lock(&self.queue);
        queue.waiting.push(item);
        let must_start = !std::mem::replace(&mut queue.is_running, true);
        must_start.then(|| Batches { queue: Arc::clone(&self.queue), is_done: false })
    }
}

fn lock<T>(queue: &Mutex<Queue<T>>) -> MutexGuard<'_, Queue<T>> {
    queue.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The batches of the task that runs them. If the task ends early, with its runtime or by a panic, every waiting item is dropped, and the
/// next one starts another task.
pub(crate) struct Batches<T> {
    queue: Arc<Mutex<Queue<T>>>,
    is_done: bool,
}

impl<T> Drop for Batches<T> {
    fn drop(&mut self) {
        if !self.is_done {
            let mut queue = lock(&self.queue);
            queue.is_running = false;
            queue.waiting.clear();
        }
    }
}

impl<T> Batches<T> {
    /// The next batch: what `take` chooses from the waiting items, in the order of their arrival; it leaves the others in the queue.
    /// `None` if it chooses none, which ends the task.
    pub(crate) fn next(&mut self, take: impl FnOnce(&mut Vec<T>) -> Vec<T>) -> Option<Vec<T>> {
        let mut queue = lock(&self.queue);
        let batch = take(&mut queue.waiting);
        if batch.is_empty() {
            queue.is_running = false;
            self.is_done = true;
            return None;
        }
        Some(batch)
    }

    /// Puts items behind those that wait.
    pub(crate) fn wait_again(&mut self, items: Vec<T>) {
        lock(&self.queue).waiting.extend(items);
    }

    /// How many items wait.
    pub(crate) fn waiting(&self) -> usize {
        lock(&self.queue).waiting.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes one waiting item.
    fn one(waiting: &mut Vec<u32>) -> Vec<u32> {
        waiting.drain(..waiting.len().min(1)).collect()
    }

    #[test]
    fn one_task_runs_the_items_of_every_clone_in_their_order() {
        let queue = BatchQueue::default();
        let mut batches = queue.push(1).unwrap();
        assert!(queue.clone().push(2).is_none(), "a second task was started");
        assert_eq!((batches.waiting(), batches.next(one)), (2, Some(vec![1])));
        batches.wait_again(vec![1]);
        assert_eq!((batches.waiting(), batches.next(one)), (2, Some(vec![2])));
        assert_eq!((batches.next(one), batches.next(one)), (Some(vec![1]), None));
        // The task has ended: what comes while it is dropped is for the next one.
        let mut next = queue.push(3).unwrap();
        drop(batches);
        assert_eq!((queue.push(4).is_none(), next.waiting(), next.next(one)), (true, 2, Some(vec![3])));
    }

    #[test]
    fn a_task_that_ends_early_drops_what_waits_and_another_one_follows() {
        let queue = BatchQueue::default();
        let batches = queue.push(1).unwrap();
        assert!(queue.push(2).is_none());
        drop(batches);
        assert_eq!(queue.push(3).unwrap().next(std::mem::take), Some(vec![3]));
    }
}
