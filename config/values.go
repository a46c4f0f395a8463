package config

import "github.com/solobeat/solobeat/internal/redisconn"

// Values are the keys of solobeat.yaml outside tasks: with what is in force, for
// people who report a problem: the URLs are masked.
func (c *Config) Values() map[string]any {
	return map[string]any{
		"namespace":               c.Namespace,
		"redis.url":               redisconn.MaskURL(c.Redis.URL),
		"redis.results_url":       redisconn.MaskURL(c.Redis.ResultsURL),
		"redis.locks_url":         redisconn.MaskURL(c.Redis.LocksURL),
		"redis.global_keyprefix":  c.Redis.GlobalKeyPrefix,
		"redis.results_keyprefix": c.Redis.ResultsKeyPrefix,
		"worker.engines":          c.Worker.Engines,
		"worker.queues":           c.Worker.Queues,
		"worker.concurrency":      c.Worker.Concurrency,
		"worker.grace":            c.Worker.Grace.String(),
		"worker.poison_after":     c.Worker.PoisonAfter,
		"worker.name":             c.Worker.Name,
		"asynq.servers":           c.Asynq.Servers,
		"schedule.file":           c.Schedule.File,
		"results.expires":         c.Results.Expires.String(),
		"metrics.listen":          c.Metrics.Listen,
		"log.level":               c.Log.Level,
		"log.format":              c.Log.Format,
	}
}
