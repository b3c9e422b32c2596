"""Tags of the lists: how long a running task is still its worker's."""

from django import template
from django.utils.translation import gettext as _

from django_delayq.templatetags.delayq import duration_text

register = template.Library()


@register.simple_tag
def lease_text(end_us: int, now_us: int, lease_us: int) -> tuple[str, str] | None:
    """Return `58 s left` and `renewed 2 s ago`; nothing for one that is over."""
    if end_us < now_us:
        return None
    ago = duration_text(max(0, now_us - end_us + lease_us))
    return _("%s left") % duration_text(end_us - now_us), _("renewed %s ago") % ago
