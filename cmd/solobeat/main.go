// Command solobeat is a Celery-compatible worker and cron scheduler in which
// every guarded job runs solo. See solobeat help.
package main

import "github.com/solobeat/solobeat"

func main() { solobeat.Main(nil) }
