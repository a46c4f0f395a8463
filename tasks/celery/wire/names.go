package wire

import (
	"strconv"
	"strings"
)

// Sep is what kombu puts between a queue and its priority step, and between
// the parts of a binding.
const Sep = "\x06\x16"

// Keys of kombu that every worker on one Redis database shares.
const (
	UnackedKey      = "unacked"       // hash: delivery tag to entry, see [ParseUnacked]
	UnackedIndexKey = "unacked_index" // zset: delivery tag, score in Unix seconds
)

// PrioritySteps are the steps of kombu's default: each queue has a list for
// each. Step 0 is served first, the opposite of what AMQP does.
func PrioritySteps() []int { return []int{0, 3, 6, 9} }

// PriorityStep gives the step of a priority, which is clamped to 0..9.
func PriorityStep(priority int) int { return clampPriority(priority) / 3 * 3 }

// QueueKey names the list in which messages of a priority wait: the bare queue
// for the step 0.
func QueueKey(queue string, priority int) string {
	step := PriorityStep(priority)
	if step == 0 {
		return queue
	}
	return queue + Sep + strconv.Itoa(step)
}

// PriorityKeys names the four lists of a queue, the one to serve first first.
func PriorityKeys(queue string) []string {
	return []string{queue, queue + Sep + "3", queue + Sep + "6", queue + Sep + "9"}
}

// SplitQueueKey gives queue and step of a list's name. A name that does not
// end in a step of kombu's is a queue of its own, step 0.
func SplitQueueKey(key string) (queue string, step int) {
	i := strings.LastIndex(key, Sep)
	if i < 0 {
		return key, 0
	}
	switch key[i+len(Sep):] {
	case "3":
		step = 3
	case "6":
		step = 6
	case "9":
		step = 9
	default:
		return key, 0
	}
	return key[:i], step
}

// BindingKeys names the two sets that hold the bindings of an exchange.
// kombu 5.7 deletes the first whole where the second is missing, so a binding
// that is to last belongs in both.
func BindingKeys(exchange string) (key, permanent string) {
	return "_kombu.binding." + exchange, "_kombu.binding_permanent." + exchange
}

// BindingMember is the text of one binding; pattern is empty except for topic
// exchanges.
func BindingMember(routingKey, pattern, queue string) string {
	return routingKey + Sep + pattern + Sep + queue
}

// ResultKey names the key of a task's result, and the channel on which the
// same bytes are published.
func ResultKey(taskID string) string { return "celery-task-meta-" + taskID }

// ReservedQueue reports whether a queue's list would lie on a key that Celery
// or Solobeat need for something else, which stops every worker of the broker.
func ReservedQueue(queue string) bool {
	return queue == UnackedKey || queue == UnackedIndexKey || queue == "unacked_mutex" ||
		strings.HasPrefix(queue, "_kombu.") || strings.HasPrefix(queue, "solobeat:") || strings.HasPrefix(queue, "celery-task-meta-")
}
