//! `memhp_default_state=`: what becomes of memory that comes.

use super::{CommandLine, Word};
use crate::frames::OnlinePolicy;

impl<'a> CommandLine<'a> {
    /// `base`, or what the last `memhp_default_state=` with a meaning says; `unknown` is called with
    /// those without one.
    ///
    /// ```
    /// use firstlight_boot::cmdline::CommandLine;
    /// use firstlight_frames::frames::OnlinePolicy;
    /// let line = CommandLine::new(b"memhp_default_state=online_movable memhp-default-state=maybe");
    /// let mut unknown = 0;
    /// let policy = line.online_policy(OnlinePolicy::Online, &mut |_| unknown += 1);
    /// assert_eq!((policy, unknown), (OnlinePolicy::OnlineMovable, 1));
    /// ```
    pub fn online_policy(
        &self,
        base: OnlinePolicy,
        unknown: &mut dyn FnMut(Word<'a>),
    ) -> OnlinePolicy {
        let mut policy = base;
        for word in self.words() {
            match word.online_policy() {
                Some(Some(said)) => policy = said,
                Some(None) => unknown(word),
                None => {}
            }
        }
        policy
    }
}

impl Word<'_> {
    /// If this is `memhp_default_state=`, what it says, or `None` if that has no meaning: for kernels
    /// that walk the words themselves.
    pub fn online_policy(&self) -> Option<Option<OnlinePolicy>> {
        let named = |policy: &OnlinePolicy| Some(policy.name().as_bytes()) == self.value;
        let is_it = self.is("memhp_default_state");
        is_it.then(|| OnlinePolicy::ALL.into_iter().find(named))
    }
}
