package tasks

import (
	"fmt"
	"regexp"
	"slices"
	"sync"
)

// Registry maps task names to handlers. It is safe for concurrent use; an
// empty Registry is ready to use.
type Registry struct {
	mu       sync.RWMutex
	handlers map[string]Handler
}

// nameRE admits what Celery's own names look like: dotted Python paths,
// dashes and colons as other queues use them.
var nameRE = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.:/-]{0,199}$`)

// ValidName reports whether name can be a task's name.
func ValidName(name string) bool { return nameRE.MatchString(name) }

// Add registers a handler under name. A name that is taken is
// [ErrDuplicateName], one that cannot be a task's name [ErrBadName].
func (r *Registry) Add(name string, h Handler) error {
	if !ValidName(name) {
		return fmt.Errorf("%w: %q: letters, digits and _.:/- only, at most 200, not starting with punctuation", ErrBadName, name)
	}
	if h == nil {
		return fmt.Errorf("%w: %q has no handler", ErrBadName, name)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, taken := r.handlers[name]; taken {
		return fmt.Errorf("%w: %q", ErrDuplicateName, name)
	}
	if r.handlers == nil {
		r.handlers = map[string]Handler{}
	}
	r.handlers[name] = h
	return nil
}

// Lookup returns the handler of a name, or false.
func (r *Registry) Lookup(name string) (Handler, bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	h, ok := r.handlers[name]
	return h, ok
}

// Names returns the registered names in order.
func (r *Registry) Names() []string {
	r.mu.RLock()
	defer r.mu.RUnlock()
	names := make([]string, 0, len(r.handlers))
	for n := range r.handlers {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}
