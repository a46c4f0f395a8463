package scheduler

import (
	_ "embed"
	"fmt"
	"strconv"
	"strings"
	"time"
	// A container without zone files must not change what a schedule means.
	// Zone files of the system, or ZONEINFO, come first.
	_ "time/tzdata"

	"github.com/solobeat/solobeat/internal/typo"
)

//go:embed zones.txt
var zoneNames string

// zone returns the location of a job, UTC if it names none. It returns UTC
// after an error too, so that the rest of the spec can be checked.
func (p *SpecParser) zone(name *string, c *collector) *time.Location {
	if name == nil {
		return time.UTC
	}
	found, ok := p.zones[*name]
	if !ok {
		found = lookupZone(*name)
		p.zones[*name] = found
	}
	c.add(found.err)
	if found.warning != nil {
		c.warn(*found.warning)
	}
	if found.loc == nil {
		return time.UTC
	}
	return found.loc
}

// lookupZone applies the rules for zone names: an IANA name, which says the
// same on every machine. Local is refused, since replicas may differ; so are
// abbreviations and bare offsets, which know no summer time.
func lookupZone(name string) zoneResult {
	bad := func(msg, cure string) zoneResult {
		return zoneResult{err: &SpecError{Field: "timezone", Value: name, Msg: msg, Cure: cure, Err: ErrUnknownZone}}
	}
	lower := strings.ToLower(strings.TrimSpace(name))
	canonical, alias, listed := listedZone(name)
	switch {
	case lower == "":
		return bad("is empty", "leave it out for UTC, or write a name such as Europe/Berlin")
	case lower == "local" || lower == "localtime" || lower == "system":
		return bad("is the zone of whatever machine runs this, and replicas may differ", "write a name such as Europe/Berlin, or leave it out for UTC")
	case zoneAbbreviation(name) != "":
		return bad("is an abbreviation, which knows no summer time and is not unique", "write a name such as "+zoneAbbreviation(name))
	case !listed && isOffset(lower):
		return bad("is an offset, which knows no summer time", offsetCure(lower))
	case !listed && !plainZoneName(name):
		return bad("is no time zone", zoneHint(name))
	}
	loc, err := time.LoadLocation(name)
	if err != nil || (!listed && listedInOtherCase(name)) {
		return bad("is no known time zone", zoneHint(name))
	}
	return zoneResult{loc: loc, warning: zoneWarning(name, canonical, alias)}
}

func zoneWarning(name, canonical string, alias bool) *Warning {
	switch {
	case alias:
		return &Warning{Code: "zone-alias", Field: "timezone", Msg: fmt.Sprintf("%s is an old name; write %s", name, canonical)}
	case strings.HasPrefix(name, "Etc/GMT+"), strings.HasPrefix(name, "Etc/GMT-"):
		side := "behind"
		if name[7] == '-' {
			side = "ahead of"
		}
		return &Warning{
			Code: "zone-sign", Field: "timezone",
			Msg: fmt.Sprintf("%s is %s hours %s UTC, all year (its sign is the other way round)", name, name[8:], side),
		}
	}
	return nil
}

// listedZone looks a name up in the list; alias tells that it is an old one.
func listedZone(name string) (canonical string, alias, ok bool) {
	for line := range strings.Lines(zoneNames) {
		zone, now, old := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		if zone == name {
			if old {
				return now, true, true
			}
			return zone, false, true
		}
	}
	return "", false, false
}

func listedInOtherCase(name string) bool {
	for line := range strings.Lines(zoneNames) {
		zone, _, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		if strings.EqualFold(zone, name) {
			return true
		}
	}
	return false
}

// plainZoneName refuses what is a file in a zone directory but no zone of the
// database: posix/…, right/… (which counts leap seconds), posixrules, paths.
func plainZoneName(name string) bool {
	if len(name) > 64 || name == "Factory" || name == "posixrules" ||
		strings.HasPrefix(name, "posix/") || strings.HasPrefix(name, "right/") {
		return false
	}
	for i := range len(name) {
		c := name[i]
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !letter && (i == 0 || strings.IndexByte("/_-+", c) < 0) {
			return false
		}
	}
	return true
}

// zoneAbbreviation returns a zone in which the abbreviation is used, or "".
func zoneAbbreviation(name string) string {
	switch strings.ToUpper(name) {
	case "EST", "EDT", "ET":
		return "America/New_York"
	case "CST", "CDT", "CT":
		return "America/Chicago"
	case "MST", "MDT", "MT":
		return "America/Denver (or America/Phoenix, without summer time)"
	case "PST", "PDT", "PT":
		return "America/Los_Angeles"
	case "AKST", "AKDT":
		return "America/Anchorage"
	case "HST":
		return "Pacific/Honolulu"
	case "WET", "WEST":
		return "Europe/Lisbon"
	case "BST":
		return "Europe/London"
	case "CET", "CEST", "MET", "MEST", "MEZ", "MESZ":
		return "Europe/Berlin"
	case "EET", "EEST":
		return "Europe/Helsinki"
	case "MSK":
		return "Europe/Moscow"
	case "IST":
		return "Asia/Kolkata"
	case "JST":
		return "Asia/Tokyo"
	case "KST":
		return "Asia/Seoul"
	case "AEST", "AEDT":
		return "Australia/Sydney"
	case "NZST", "NZDT":
		return "Pacific/Auckland"
	}
	return ""
}

// isOffset tells whether a name in lower case is like utc+8, gmt-3 or +05:30.
func isOffset(lower string) bool {
	rest := offsetPart(lower)
	if len(rest) < 2 || rest[0] != '+' && rest[0] != '-' {
		return false
	}
	return isDigits(strings.ReplaceAll(rest[1:], ":", ""))
}

func offsetPart(lower string) string {
	rest := strings.TrimPrefix(strings.TrimPrefix(lower, "utc"), "gmt")
	return strings.TrimSpace(rest)
}

func offsetCure(lower string) string {
	rest := offsetPart(lower)
	cure := "write the name of a region, such as " + regionAt(rest)
	hours, err := strconv.Atoi(strings.TrimSuffix(strings.TrimPrefix(rest, "+"), ":00"))
	switch {
	case err != nil || hours < -12 || hours > 14:
		return cure
	case hours == 0:
		return "write UTC"
	case hours > 0:
		return fmt.Sprintf("%s, or Etc/GMT-%d for that offset all year (the sign is the other way round)", cure, hours)
	default:
		return fmt.Sprintf("%s, or Etc/GMT+%d for that offset all year (the sign is the other way round)", cure, -hours)
	}
}

// regionAt names a large region at a common offset.
func regionAt(offset string) string {
	switch strings.TrimSuffix(strings.Replace(offset, "+0", "+", 1), ":00") {
	case "+8":
		return "Asia/Shanghai"
	case "+9":
		return "Asia/Tokyo"
	case "+5:30", "+530":
		return "Asia/Kolkata"
	case "+3":
		return "Europe/Moscow"
	case "-3", "-03":
		return "America/Sao_Paulo"
	case "-5", "-05":
		return "America/New_York"
	case "-8", "-08":
		return "America/Los_Angeles"
	}
	return "Europe/Berlin"
}

// zoneHint suggests the listed name that is nearest to an unknown one.
func zoneHint(name string) string {
	const general = "write a name of the IANA database, such as Europe/Berlin"
	if len(name) > 64 {
		return general
	}
	lower := strings.ToLower(strings.ReplaceAll(strings.TrimSpace(name), " ", "_"))
	for _, prefix := range []string{"posix/", "right/"} {
		lower = strings.TrimPrefix(lower, prefix)
	}
	city := cityOf(lower)
	best, distance := "", len(lower)/3+1
	for line := range strings.Lines(zoneNames) {
		zone, now, old := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		if strings.HasPrefix(zone, "#") {
			continue
		}
		known := strings.ToLower(zone)
		d := typo.Distance(lower, known)
		if city == cityOf(known) && len(city) > 2 && d > 1 {
			d = 1 // the right city in a wrong region
		}
		if d < distance {
			best, distance = zone, d
			if old {
				best = now
			}
		}
	}
	if best == "" {
		return general
	}
	return "did you mean " + best + "?"
}

func cityOf(name string) string { return name[strings.LastIndexByte(name, '/')+1:] }
