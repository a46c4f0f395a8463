package config

import (
	"fmt"
	"slices"
	"strings"

	"github.com/solobeat/solobeat/internal/typo"
)

// didYouMean is a cure for a word that is not among the known ones.
func didYouMean(word string, known []string) string {
	if near := typo.Nearest(word, known); near != "" {
		return fmt.Sprintf("did you mean %s?", near)
	}
	if len(known) == 1 {
		return fmt.Sprintf("write %s, or leave it out", known[0])
	}
	return "known here: " + strings.Join(known, ", ")
}

// otherWords are names that other tools and older files use, and ours.
func otherWords(word string) string {
	switch word {
	case "schedule", "crontab", "cronspec":
		return "cron"
	case "interval", "period":
		return "every"
	case "tz", "zone", "timeZone":
		return "timezone"
	case "payload", "params", "parameters":
		return "kwargs"
	case "suspend", "disabled", "active":
		return "enabled"
	case "description", "comment", "tags":
		return "labels"
	case "max_retries", "maxRetries", "autoretry":
		return "retries"
	case "soft_time_limit", "time_limit", "activeDeadlineSeconds":
		return "timeout"
	case "startingDeadlineSeconds", "misfire_grace_time":
		return "misfire.deadline"
	case "concurrencyPolicy", "overlap":
		return "lock.on_busy"
	case "broker_url", "redis_url", "redbeat_redis_url", "broker":
		return "redis.url"
	case "result_backend", "results_url":
		return "redis.results_url"
	case "locks_url":
		return "redis.locks_url"
	case "global_keyprefix":
		return "redis.global_keyprefix"
	case "worker_concurrency", "concurrency":
		return "worker.concurrency"
	case "task_default_queue", "queues":
		return "worker.queues"
	case "result_expires", "task_result_expires":
		return "results.expires"
	case "beat_schedule", "schedule_file":
		return "schedule.file"
	}
	return ""
}

// elsewhere says where a key belongs that is unknown in the block at path;
// "" if it is known nowhere.
func elsewhere(path, word string, known []string) string {
	if to := otherWords(word); to != "" {
		head, _, _ := strings.Cut(to, ".")
		if slices.Contains(known, head) && !strings.HasSuffix(path, head) {
			return "write " + to
		}
	}
	if _, job, ok := strings.Cut(path, "jobs."); ok && !strings.Contains(job, ".") && slices.Contains([]string{"command", "cmd", "shell", "script", "run"}, word) {
		return "write the program into solobeat.yaml, under tasks: NAME: command:, and name it here by task:"
	}
	if _, job, ok := strings.Cut(path, "jobs."); ok && !strings.Contains(job, ".") && slices.Contains([]string{"webhook", "http", "url", "request"}, word) {
		return "write the request into solobeat.yaml, under tasks: NAME: webhook:, and name it here by task:"
	}
	if strings.HasSuffix(path, ".webhook") {
		switch word {
		case "url_file":
			return "write url: {file: PATH}"
		case "timeout", "retries", "params", "lock", "idempotency":
			return "write it beside webhook:, not in it"
		}
	}
	if path == "defaults" && slices.Contains([]string{"task", "args", "kwargs", "cron", "every", "at", "enabled"}, word) {
		return "write it in each job"
	}
	for _, block := range known {
		if rest, ok := strings.CutPrefix(word, block+"_"); ok {
			if near := typo.Nearest(rest, keysOf(block)); near != "" {
				return fmt.Sprintf("did you mean %s, under %s:?", near, block)
			}
		}
		if slices.Contains(keysOf(block), word) {
			return fmt.Sprintf("it belongs under %s:", block)
		}
	}
	return ""
}

// keysOf lists the keys of the blocks that hold no other blocks.
func keysOf(block string) []string {
	switch block {
	case "lock":
		return []string{"key", "backend", "ttl", "renew", "expect", "max_hold", "on_busy", "fence_base"}
	case "idempotency":
		return []string{"store", "retention", "effect", "fingerprint"}
	case "misfire":
		return []string{"policy", "deadline"}
	case "retries":
		return []string{"max", "base", "max_delay"}
	case "dst":
		return []string{"gap", "fold"}
	case "defaults":
		return []string{
			"timezone", "engine", "queue", "days", "jitter", "timeout", "expires", "priority", "retries",
			"lock", "idempotency", "misfire", "dst", "owner", "runbook", "labels",
		}
	case "webhook":
		return []string{"url", "method", "headers", "body"}
	case "worker":
		return []string{"engines", "queues", "concurrency", "grace", "poison_after"}
	}
	return nil
}
